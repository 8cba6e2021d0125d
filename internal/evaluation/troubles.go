package main

import (
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// troubled is one column of the tables: what goes wrong.
type troubled struct {
	column  string
	trouble simulate.Trouble
	down    float64 // share of the workload that engines 0 and 7 are away, from its half on
}

var unknowns = []troubled{
	{"all well", simulate.Trouble{}, 0},
	{"lengths capped", simulate.Trouble{Lengths: simulate.Capped}, 0},
	{"lengths unknown", simulate.Trouble{Lengths: simulate.Uncapped}, 0},
	{"away, lost", simulate.Trouble{}, 0.1},
	{"away, tried again", simulate.Trouble{Attempts: 3}, 0.1},
}

var reports = []troubled{
	{"each 0.1 s", simulate.Trouble{Report: 0.1}, 0},
	{"each 1 s", simulate.Trouble{Report: 1}, 0},
	{"1 s, 1 s late", simulate.Trouble{Report: 1, Late: 1}, 0},
	{"1 s, half lost", simulate.Trouble{Report: 1, Lost: 0.5}, 0},
	{"1 s, skew 0.5 s", simulate.Trouble{Report: 1, Skew: 0.5}, 0},
	{"all of it", simulate.Trouble{Lengths: simulate.Uncapped, Report: 1, Late: 1, Lost: 0.5, Skew: 0.5}, 0},
}

// troubles are the tables of what the router does not know, or learns late.
func (e *evaluation) troubles() (string, error) {
	var b strings.Builder
	b.WriteString("### Lengths that are not known, engines that come back\n\nCapped: a client allows a power of two of tokens, one to eight times what it gets. Unknown: it allows any number. The router reckons with what it has learned of answers. " +
		"Away: engines 0 and 7 die half way and are there again, empty, after a tenth of the workload; what they held is lost, or placed again, at most three times, unless a client had a token of it.\n\n")
	if err := e.troubledBy(&b, unknowns); err != nil {
		return "", err
	}
	b.WriteString("### Telemetry that is late, lost or of another clock\n\nThe router knows of residents and queues only what engines report, and what it has placed since; a report can be late, or lost (seeded), and the engine's clock is off, by at most the skew, in either direction, each by its own. A report says what its clock shows, and its times are read against that; residents are taken to have gone on since at the pace that they had. " +
		"The router itself takes no times from engines: it counts what passes through it. All policies see the same reports.\n\n")
	err := e.troubledBy(&b, reports)
	return b.String(), err
}

func (e *evaluation) troubledBy(b *strings.Builder, cases []troubled) error {
	var columns []string
	for _, c := range cases {
		columns = append(columns, c.column)
	}
	for _, n := range names {
		c, err := e.load(n)
		if err != nil {
			return err
		}
		last := c.Arrivals[len(c.Arrivals)-1].At
		text, _, err := e.each(n, columns, func(i int) (string, simulate.Config) {
			d := c
			d.Trouble = cases[i].trouble
			if away := cases[i].down * last; away > 0 {
				d.Unlike = []simulate.Unlike{{Engine: 0, Dies: last / 2, Back: last/2 + away}, {Engine: 7, Dies: last / 2, Back: last/2 + away}}
			}
			return n + ", " + columns[i], d
		})
		if err != nil {
			return err
		}
		b.WriteString(text)
	}
	return nil
}

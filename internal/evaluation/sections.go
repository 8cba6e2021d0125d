package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

func (e *evaluation) speeds() (string, error) {
	var b strings.Builder
	b.WriteString("## Engines that are not as fast as their profile\n\nTimes of engines over those of their profile.\n\n")
	speeds := []float64{0.70, 0.90, 0.95, 0.98, 1, 1.02, 1.05, 1.10, 1.30}
	var columns []string
	for _, s := range speeds {
		columns = append(columns, fmt.Sprintf("%.2f", s))
	}
	for _, n := range names {
		c, err := e.load(n)
		if err != nil {
			return "", err
		}
		text, _, err := e.each(n, columns, func(i int) (string, simulate.Config) {
			c.Slow = speeds[i]
			return fmt.Sprintf("%s, engines %s times slower", n, columns[i]), c
		})
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// mixed is chats all the time, fewer of them beside documents in the middle.
func mixed(seed uint64) []simulate.Arrival {
	r := rand.New(rand.NewPCG(seed, 1))
	out := flow(nil, r, 0, 200, 60, 350, 200, "chat")
	out = flow(out, r, 200, 400, 22, 350, 200, "chat")
	out = flow(out, r, 200, 400, 5, 9000, 120, "doc")
	out = flow(out, r, 400, 600, 60, 350, 200, "chat")
	return ordered(out)
}

func ordered(as []simulate.Arrival) []simulate.Arrival {
	slices.SortStableFunc(as, func(x, y simulate.Arrival) int {
		switch {
		case x.At < y.At:
			return -1
		case x.At > y.At:
			return 1
		}
		return 0
	})
	return as
}

func (e *evaluation) seeds() (string, error) {
	c, err := e.load("chatdoc-100")
	if err != nil {
		return "", err
	}
	var columns []string
	for seed := range 5 {
		columns = append(columns, fmt.Sprint(seed+1))
	}
	drawn, _, err := e.each("Arrivals of seed", columns, func(i int) (string, simulate.Config) {
		d := c
		d.Arrivals, d.Seed = mixed(uint64(i)+1), uint64(i)+1
		return "chats and documents of seed " + columns[i], d
	})
	if err != nil {
		return "", err
	}
	ties, _, err := e.each("chatdoc-100, names of seed", columns, func(i int) (string, simulate.Config) {
		d := c
		d.Seed = uint64(i) + 1
		return "chatdoc-100, names of seed " + columns[i], d
	})
	return "## Seeds\n\nArrivals that no file holds: chats at 60 a second, then 200 s of 22 chats and 5 documents a second, then chats again. Below, one workload with other names of its requests, which break ties.\n\n" + drawn + ties, err
}

func (e *evaluation) traces() (string, error) {
	c, err := e.load("azure-x4")
	if err != nil {
		return "", err
	}
	tiny, ttft, tpot := small()
	s := simulate.Defaults(ttft, tpot)
	s.Model = tiny
	var b strings.Builder
	b.WriteString("## Traces at shares of capacity\n\nThe embedded 90 s of the Azure LLM inference traces of 2023 (Azure/AzurePublicDataset, CC-BY 4.0; cut), repeated for 180 s and sped up. At 1.0 " +
		"both phases together ask for as many engine seconds as there are, with full batches within the promise. Large: eight engines of azure-x4. Small: four engines, first token within 0.5 s, 12 ms between tokens.\n\n")
	shares := []float64{0.5, 0.7, 0.9, 1, 1.1, 1.3}
	for _, name := range []string{"azure", "azure-conv", "azure-code"} {
		t, err := bench.Embedded(name)
		if err != nil {
			return "", err
		}
		for _, m := range []struct {
			word string
			base simulate.Config
		}{{"large", c}, {"small", s}} {
			var columns []string
			for _, x := range shares {
				columns = append(columns, fmt.Sprintf("%.1f", x))
			}
			text, _, err := e.each(name+", "+m.word, columns, func(i int) (string, simulate.Config) {
				d := m.base
				d.Score, d.Arrivals, d.Seed = "", repeated(t, d.Model, d.Params.TPOT, shares[i], 180), 1
				return fmt.Sprintf("%s, %s, at %s of capacity", name, m.word, columns[i]), d
			})
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		}
	}
	return b.String(), nil
}

func (e *evaluation) robust() (string, error) {
	var b strings.Builder
	b.WriteString("## Robustness\n\nA profile that is wrong by 30 % in either direction stands above (0.70, 1.30). One engine at half speed, from the start; one that dies half way with all that it holds, for good, nobody trying again. Engine 0 starts as prefill, engine 7 as decode.\n\n")
	for _, n := range names {
		c, err := e.load(n)
		if err != nil {
			return "", err
		}
		columns := []string{"all well", "engine 0 at half speed", "engine 7 at half speed", "engine 0 dies", "engine 7 dies"}
		half := c.Arrivals[len(c.Arrivals)-1].At / 2
		cases := []simulate.Unlike{{}, {Engine: 0, Slow: 2}, {Engine: 7, Slow: 2}, {Engine: 0, Dies: half}, {Engine: 7, Dies: half}}
		text, _, err := e.each(n, columns, func(i int) (string, simulate.Config) {
			d := c
			d.Unlike = []simulate.Unlike{cases[i]}
			return n + ", " + columns[i], d
		})
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	more, err := e.troubles()
	return b.String() + more, err
}

// wave is chats and documents that take turns, each for half of a period.
func wave(period, span float64) []simulate.Arrival {
	r := rand.New(rand.NewPCG(7, uint64(period)))
	var out []simulate.Arrival
	for from := 0.0; from < span; from += period {
		out = flow(out, r, from, min(span, from+period/2), 60, 350, 200, "chat")
		out = flow(out, r, from+period/2, min(span, from+period), 5, 10000, 60, "doc")
	}
	return ordered(out)
}

// periods of the square wave in seconds.
var periods = []float64{5, 10, 30, 60, 120, 300, 600, 1800}

func (e *evaluation) waves() (string, error) {
	c, err := e.load("chatdoc-100")
	if err != nil {
		return "", err
	}
	var columns []string
	for _, p := range periods {
		columns = append(columns, fmt.Sprintf("%g s", p))
	}
	text, runs, err := e.each("Period", columns, func(i int) (string, simulate.Config) {
		d := c
		d.Arrivals = wave(periods[i], span(periods[i]))
		return "square wave of " + columns[i], d
	})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("## A square wave\n\n60 chats a second for half of a period, then 5 documents a second for the other half, for twenty minutes or two periods, whichever is longer.\n\n" + text)
	fmt.Fprintf(&b, "Moves an hour:\n\n| Period | %s |\n| --- |%s\n", strings.Join(columns, " | "), strings.Repeat(" ---: |", len(columns)))
	for i, a := range runs[0].Arms {
		fmt.Fprintf(&b, "| %s |", label(a))
		for k, r := range runs {
			fmt.Fprintf(&b, " %.0f |", float64(r.Arms[i].Moves)*3600/span(periods[k]))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

func span(period float64) float64 { return max(1200, 2*period) }

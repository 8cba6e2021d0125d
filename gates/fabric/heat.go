package fabric

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Heat is gate D's evidence as a picture: a row and a column a host.
type Heat struct {
	Hosts    []string
	Rows     []HeatRow
	Floor    float64 // Gbit/s that every edge needs
	Usual    float64 // Gbit/s of a usual edge, 0 when there are too few to tell
	Outliers []record.Finding
	Incast   []HeatIncast
}

// HeatRow is what one host sends.
type HeatRow struct {
	Host  string
	Cells []Cell
}

// Cell is one directed edge. State is good, low (far below its peers), bad (below the floor,
// lossy, cut short or unreachable), none (not measured) or self. Text and Marks say the same
// as the colour.
type Cell struct {
	State string
	Shade int // 0 the fastest … 3 the slowest of the good ones
	Text  string
	Marks string
	Label string // the whole, in words
}

// HeatIncast is what one host took in from all others, and the sender that got least through.
type HeatIncast struct {
	Host  string
	Gbps  float64
	Least float64
	From  string
}

// HeatOf draws what was recorded; what was not is "none".
func HeatOf(v gates.View) Heat {
	e, _ := read(v)
	h := Heat{Hosts: e.hosts, Floor: e.budget.Floor, Outliers: Gate{}.Judge(v)}
	if len(e.pairs) == 0 {
		return Heat{}
	}
	rates := map[Edge]float64{}
	e.each(func(edge Edge, d Direction, _, _ End, _ string) { rates[edge] = able(d.Together) })
	_, usual := below(rates, e.fab.Outlier)
	if len(rates) >= minPeers {
		h.Usual = usual
	}
	for _, from := range e.hosts {
		row := HeatRow{Host: from}
		for _, to := range e.hosts {
			row.Cells = append(row.Cells, e.cell(Edge{from, to}, h.Usual))
		}
		h.Rows = append(h.Rows, row)
	}
	for _, to := range incastHosts(e.fleet) {
		var i Incast
		if v.Decode(incastKey(to), &i) != nil {
			continue
		}
		in := HeatIncast{Host: to, Gbps: i.Gbps}
		for _, s := range slices.Sorted(maps.Keys(i.Shares)) {
			if in.From == "" || i.Shares[s] < in.Least {
				in.From, in.Least = s, i.Shares[s]
			}
		}
		h.Incast = append(h.Incast, in)
	}
	return h
}

func (e evidence) cell(edge Edge, usual float64) Cell {
	name := edge.From + " to " + edge.To + ": "
	if edge.From == edge.To {
		return Cell{State: "self", Text: "–", Label: edge.From + " itself"}
	}
	p, ok := e.pairs[pairOf(e.hosts, edge)]
	switch {
	case !ok:
		return Cell{State: "none", Text: "?", Label: name + "not measured"}
	case p.Unreachable != "":
		return Cell{State: "bad", Text: "×", Marks: "unreachable", Label: name + "unreachable: " + p.Unreachable}
	}
	d, from, to := p.Of(edge)
	c := Cell{State: "good", Text: fmt.Sprintf("%.3g", d.Gbps)}
	var marks []string
	mark := func(state, says string) {
		marks = append(marks, says)
		if c.State != "bad" {
			c.State = state
		}
	}
	if e.tcp() && !(d.Gbps >= e.budget.Floor) {
		mark("bad", "below floor")
	}
	if n := d.Lost(); n >= leastLost && !loopback(from, to) {
		mark("bad", fmt.Sprintf("%d lost", n))
	}
	if want := min(from.MTU, to.MTU, mostMTU); d.PathMTU < want {
		mark("bad", fmt.Sprintf("cut at %d B", d.PathMTU))
	}
	if now := able(d.Together); usual > 0 && e.fab.Outlier > 0 && !loopback(from, to) && now < (1-e.fab.Outlier)*usual {
		mark("low", fmt.Sprintf("−%.0f %%", 100*(1-now/usual)))
	}
	if usual > 0 {
		c.Shade = min(3, max(0, int(10*(1-d.Gbps/usual))))
	}
	c.Marks = strings.Join(marks, ", ")
	c.Label = fmt.Sprintf("%s%s both ways at once, %s alone, round trip %.0f µs, %d of %d segments sent again", name, gbps(d.Gbps), gbps(d.AloneGbps), p.RTT, d.Retransmits, d.Segments)
	if c.Marks != "" {
		c.Label += "; " + c.Marks
	}
	return c
}

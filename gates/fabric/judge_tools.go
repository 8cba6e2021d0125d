package fabric

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// judgeTools holds what other tools measured to the floor, with both directions at once and
// with the sizes in which KV moves, to their peers and to their past.
func judgeTools(v gates.View, e evidence) []record.Finding {
	var out []record.Finding
	for _, t := range toolsOf(e.fab) {
		rate := map[Edge]float64{}
		absent := ""
		for _, edge := range edges(e.hosts) {
			var s ToolSample
			if v.Decode(toolKey(t, edge), &s) != nil {
				continue
			}
			if s.Absent != "" && optional(e.fab, t) {
				if absent == "" {
					absent = string(toolKey(t, edge))
					out = append(out, e.without(t, s.Absent, absent))
				}
				continue
			}
			if !e.inside(edge) {
				rate[edge] = s.able()
			}
			out = append(out, e.byTool(t, edge, s)...)
		}
		slow, mid := below(rate, e.fab.Outlier)
		for _, c := range blame(e.hosts, slow) {
			out = append(out, record.Finding{Code: "tool-outlier", Host: c.at(), Want: gbps(mid), Got: gbps(rate[c.edge]), Evidence: string(toolKey(t, c.edge)),
				Message: fmt.Sprintf("%s: %s by %s, %.0f %% below the other edges' %s", c.name(), gbps(rate[c.edge]), t, 100*(1-rate[c.edge]/mid), gbps(mid)),
				Hint:    "compare its link with the others': width and speed (ibv_devinfo, ibstat), lanes, PCI link, NUMA placement; then " + again})
		}
	}
	return out
}

// without notes that a tool is not on all hosts, where the fleet leaves that open.
func (e evidence) without(t, host, at string) record.Finding {
	return record.Finding{Code: "tool-absent", Note: true, Host: host, Want: t, Got: "not installed", Evidence: at,
		Message: fmt.Sprintf("host %s: %s is not installed, so its edges were measured by the tester alone", host, t),
		Hint:    "install it on every engine host, or leave out deploy.fabric.tool; then " + again}
}

// byTool holds one edge to the floor and to its past.
func (e evidence) byTool(t string, edge Edge, s ToolSample) []record.Finding {
	at, floor := string(toolKey(t, edge)), e.budget.Floor
	name := fmt.Sprintf("edge %s → %s", edge.From, edge.To)
	if !(s.Gbps >= floor) {
		return []record.Finding{{Code: "tool-slow", Host: edge.From, Want: gbps(floor), Got: gbps(s.Gbps), Evidence: at,
			Message: fmt.Sprintf("%s: %s by %s, %s required", name, gbps(s.Gbps), t, gbps(floor)),
			Hint:    "check device, port and GID index (deploy.fabric.device, gid_index), link layer and flow control; then " + again}}
	}
	var out []record.Finding
	for _, r := range s.Runs {
		switch {
		case r.Both && !(r.Gbps >= 2*floor):
			out = append(out, record.Finding{Code: "tool-duplex", Host: edge.From, Want: gbps(2 * floor), Got: gbps(r.Gbps), Evidence: at,
				Message: fmt.Sprintf("edges between %s and %s: %s by %s with both directions at once, %s required of the two together", edge.From, edge.To, gbps(r.Gbps), t, gbps(2*floor)),
				Hint:    "both directions share something: look at the PCI link's width and speed (lspci -vv, LnkSta), flow control, NUMA placement; then " + again})
		case !r.Both && !(r.Gbps >= e.budget.Required):
			out = append(out, record.Finding{Code: "tool-size-slow", Host: edge.From, Want: gbps(e.budget.Required), Got: gbps(r.Gbps), Evidence: at,
				Message: fmt.Sprintf("%s: %s by %s in messages of %d bytes, %s required", name, gbps(r.Gbps), t, r.Bytes, gbps(e.budget.Required)),
				Hint:    "small messages are bound by their number: larger blocks, more streams; large ones by the path MTU and flow control; then " + again})
		}
	}
	return append(out, e.toolPast(t, edge, s)...)
}

// toolPast is past for another tool, which needs repeats to know its own spread.
func (e evidence) toolPast(t string, edge Edge, s ToolSample) []record.Finding {
	var was []float64
	for _, h := range s.History {
		if h.Fingerprint == s.Fingerprint {
			was = append(was, h.Forward)
		}
	}
	n := len(s.main())
	mid := median(was)
	if e.fab.Outlier <= 0 || e.inside(edge) || n < toolRepeats || len(was) == 0 || !(s.Gbps < (1-e.fab.Outlier)*mid) || mid-s.Gbps <= separation*uncertainty(s.Spread, n) {
		return nil
	}
	return []record.Finding{{Code: "tool-degraded", Host: edge.From, Want: gbps(mid), Got: gbps(s.Gbps), Evidence: string(toolKey(t, edge)),
		Message: fmt.Sprintf("edge %s → %s: %s by %s, and %s in %d earlier samples of the same ends and commands", edge.From, edge.To, gbps(s.Gbps), t, gbps(mid), len(was)),
		Hint:    "something changed that no route shows: link width, a switch's setting, a neighbour's load; narwhal gate log --gate D shows when; then " + again}}
}

// inside reports whether the pair was seen to meet on a loopback, where rates are the machine's.
func (e evidence) inside(edge Edge) bool {
	p, ok := e.pairs[pairOf(e.hosts, edge)]
	return ok && loopback(p.EndA, p.EndB)
}

// main are the repeats of the run that is the edge's rate.
func (s ToolSample) main() []float64 {
	for _, r := range s.Runs {
		if !r.Both && r.Bytes == mainBytes {
			return r.Repeat
		}
	}
	return nil
}

// able is what the edge can carry by the tool; of a sample without repeats, its rate.
func (s ToolSample) able() float64 {
	if r := s.main(); len(r) > 0 {
		return able(r)
	}
	return s.Gbps
}

package fabric

import (
	"fmt"
	"math"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// loopback reports whether an edge never leaves its machine: it says nothing of a network,
// and is held to the floor alone.
func loopback(from, to End) bool {
	a, _ := cutRoute(from.Route)
	b, _ := cutRoute(to.Route)
	return a == "lo" || b == "lo"
}

// peers finds edges that can carry much less than the others, though they may clear the
// floor: with both directions at once and alone. Where both at once is very low, that is
// enough.
func (e evidence) peers() []record.Finding {
	together, alone := map[Edge]float64{}, map[Edge]float64{}
	e.each(func(edge Edge, d Direction, from, to End, _ string) {
		if !loopback(from, to) {
			together[edge], alone[edge] = able(d.Together), able(d.Alone)
		}
	})
	slow, mid := below(together, e.fab.Outlier)
	_, midAlone := below(alone, e.fab.Outlier)
	for edge := range slow { // alone has few repeats: it confirms
		slow[edge] = alone[edge] < (1-e.fab.Outlier/2)*midAlone || together[edge] < (1-2*e.fab.Outlier)*mid
	}
	var out []record.Finding
	for _, c := range blame(e.hosts, slow) {
		got := together[c.edge]
		out = append(out, record.Finding{Code: "edge-outlier", Host: c.at(), Want: gbps(mid), Got: gbps(got), Evidence: string(pairKey(pairOf(e.hosts, c.edge))),
			Message: fmt.Sprintf("%s: %s, %.0f %% below the other edges' %s (%s alone)", c.name(), gbps(got), 100*(1-got/mid), gbps(mid), gbps(alone[c.edge])),
			Hint:    "compare its link with the others': negotiated speed and lanes (ethtool, lspci -vv), switch port, cable, bonding; where hosts differ by design set deploy.fabric.outlier to 0; then " + again})
	}
	return out
}

// uncertainty is the standard error of a median of n values with this scaled deviation.
func uncertainty(spread float64, n int) float64 {
	if n < 2 {
		return 0
	}
	return 1.2533 * spread / math.Sqrt(float64(n))
}

// past finds edges that carry much less than they did, by the same route, interface, tool
// and parameters.
func (e evidence) past() []record.Finding {
	var out []record.Finding
	e.each(func(edge Edge, d Direction, from, to End, at string) {
		if e.fab.Outlier <= 0 || loopback(from, to) {
			return
		}
		var was []float64
		p := e.pairs[pairOf(e.hosts, edge)]
		for _, h := range p.History {
			if v := h.Forward; h.Fingerprint == p.Fingerprint {
				if edge.From == p.B {
					v = h.Back
				}
				was = append(was, v)
			}
		}
		mid := median(was)
		if len(was) > 0 && d.Gbps < (1-e.fab.Outlier)*mid && mid-d.Gbps > separation*uncertainty(d.Spread, len(d.Together)) {
			out = append(out, record.Finding{Code: "edge-degraded", Host: edge.From, Want: gbps(mid), Got: gbps(d.Gbps), Evidence: at,
				Message: fmt.Sprintf("edge %s → %s: %s, and %s in %d earlier samples of the same route and parameters", edge.From, edge.To, gbps(d.Gbps), gbps(mid), len(was)),
				Hint:    "something changed that no route shows: link speed, a bond's member, a neighbour's load; narwhal gate log --gate D shows when; then " + again})
		}
	})
	return out
}

package fabric

import "slices"

// culprit is where a fault that shows on several edges lies: a host's link, or one edge.
type culprit struct {
	host string // "" when it is one edge
	side string // "sends" | "takes in"
	edge Edge   // the first of its edges
	n    int    // edges that it explains
}

// blame explains flagged edges. Where two thirds or more of what a host sends or takes in
// is flagged, and it is more than one edge, its own link is at fault.
func blame(hosts []string, flagged map[Edge]bool) []culprit {
	var out []culprit
	explained := map[Edge]bool{}
	for _, h := range hosts {
		for _, side := range []string{"sends", "takes in"} {
			var hit []Edge
			total := 0
			for _, o := range hosts {
				if o == h {
					continue
				}
				e := Edge{h, o}
				if side == "takes in" {
					e = Edge{o, h}
				}
				total++
				if flagged[e] {
					hit = append(hit, e)
				}
			}
			if len(hit) >= 2 && 3*len(hit) >= 2*total {
				out = append(out, culprit{host: h, side: side, edge: hit[0], n: len(hit)})
				for _, e := range hit {
					explained[e] = true
				}
			}
		}
	}
	for _, e := range edges(hosts) {
		if flagged[e] && !explained[e] {
			out = append(out, culprit{edge: e, n: 1})
		}
	}
	return slices.Clip(out)
}

func (c culprit) at() string {
	if c.host != "" {
		return c.host
	}
	return c.edge.From
}

// name says whose it is, as "edge a → b" or "host a, which sends on 7 edges".
func (c culprit) name() string {
	if c.host == "" {
		return "edge " + c.edge.From + " → " + c.edge.To
	}
	return "host " + c.host + ", all that it " + c.side
}

// pair is the key's pair of an edge.
func pairOf(hosts []string, e Edge) Twosome {
	if slices.Index(hosts, e.From) < slices.Index(hosts, e.To) {
		return Twosome{e.From, e.To}
	}
	return Twosome{e.To, e.From}
}

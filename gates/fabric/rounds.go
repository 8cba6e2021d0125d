package fabric

// Edge is one direction between two hosts.
type Edge struct{ From, To string }

// Twosome is two hosts that are measured together, in both directions.
type Twosome struct{ A, B string }

// Edges are both directions.
func (p Twosome) Edges() [2]Edge { return [2]Edge{{p.A, p.B}, {p.B, p.A}} }

// Rounds orders all pairs like a tournament: within a round each host meets one other, so
// n hosts need n−1 rounds, or n when n is odd. Within a pair the host that stands earlier
// in the list is A.
func Rounds(hosts []string) [][]Twosome {
	place := make(map[string]int, len(hosts))
	for i, h := range hosts {
		place[h] = i
	}
	ring := append([]string(nil), hosts...)
	if len(ring)%2 == 1 {
		ring = append(ring, "") // a host that meets "" rests
	}
	var out [][]Twosome
	n := len(ring)
	for round := 0; round < n-1; round++ {
		var pairs []Twosome
		for i := 0; i < n/2; i++ {
			a, b := ring[i], ring[n-1-i]
			if a == "" || b == "" {
				continue
			}
			if place[a] > place[b] {
				a, b = b, a
			}
			pairs = append(pairs, Twosome{a, b})
		}
		out = append(out, pairs)
		last := ring[n-1]
		copy(ring[2:], ring[1:n-1])
		ring[1] = last
	}
	return out
}

// pairs are all rounds in one list.
func pairs(hosts []string) []Twosome {
	var out []Twosome
	for _, r := range Rounds(hosts) {
		out = append(out, r...)
	}
	return out
}

// edges are all directed edges.
func edges(hosts []string) []Edge {
	var out []Edge
	for _, p := range pairs(hosts) {
		e := p.Edges()
		out = append(out, e[0], e[1])
	}
	return out
}

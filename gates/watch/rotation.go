package watch

import "time"

// Pair is a directed pair of engines by their ids.
type Pair struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func (p Pair) String() string { return p.From + "/" + p.To }

// oldest is the one of all that may be looked at and was looked at longest ago; of equals, as of
// those never looked at, the first. Where all may be, that is a round: none is looked at twice
// before every other was once.
func oldest[T any](all []T, at func(T) time.Time, may func(T) bool) (next T, ok bool) {
	for _, x := range all {
		if may(x) && (!ok || at(x).Before(at(next))) {
			next, ok = x, true
		}
	}
	return next, ok
}

// pairsOf are all directed pairs, those of each engine with the next first.
func pairsOf(ids []string) (out []Pair) {
	for shift := 1; shift < len(ids); shift++ {
		for i, from := range ids {
			out = append(out, Pair{from, ids[(i+shift)%len(ids)]})
		}
	}
	return out
}

package simulate

import (
	"math"
	"slices"
)

// slack, in seconds, keeps rounding from making the bound too small.
const slack = 1e-6

// gridPoints is how many intervals the bound's grid has.
const gridPoints = 72

// claim is what a request must take of the fleet to keep its promise.
type claim struct {
	from          float64
	prefillBy, by float64 // ends of its prefill span and of its whole span
	prefill, work float64 // engine seconds of each
}

// claim returns the claim of arrival i; false when it misses even alone.
func (c *Config) claim(i int) (claim, bool) {
	a := c.Arrivals[i]
	m, n, k := &c.Model, a.Input, max(1, a.Output)
	own, alone := m.prefill(n, c.Slow), m.step(1, n, c.Slow)
	if h := c.head(i); c.PrefixTokens > 0 && h.Family != 0 { // as if an engine always had it
		curve := m.curve()
		own = c.Slow * curve.Warm(n, h.Tokens)
	}
	rest := alone
	if !c.together {
		rest += m.transfer(n)
	}
	if own+rest > c.Params.TTFT+slack || n+k > m.KVTokens {
		return claim{}, false
	}
	fk := float64(k)
	if k > 1 {
		// Steps after the first start with n+1 … n+k−1 tokens.
		mean := alone + c.Slow*m.Decode.M*fk/2
		if mean > c.Params.TPOT+slack {
			return claim{}, false
		}
	}
	share := fk * (m.Decode.C/float64(m.MaxRunning) + m.Decode.R + m.Decode.M*(float64(n)+(fk-1)/2))
	end := a.At + c.Params.TTFT
	return claim{from: a.At, prefillBy: end - rest, by: end + (fk-1)*c.Params.TPOT, prefill: own, work: own + c.Slow*share}, true
}

// hindsight returns the most requests that any policy can serve within the promise; the
// package comment has the proof.
func (c *Config) hindsight() int {
	var claims []claim
	last := 0.0
	for i, a := range c.Arrivals {
		if !c.scores(a) {
			continue
		}
		if x, ok := c.claim(i); ok {
			claims = append(claims, x)
			last = math.Max(last, x.by)
		}
	}
	byPrefill, byWork := slices.Clone(claims), claims
	sortBy(byPrefill, func(x claim) float64 { return x.prefill })
	sortBy(byWork, func(x claim) float64 { return x.work })
	at := func(i int) float64 { return last * float64(i) / gridPoints }
	lost := make([]int, gridPoints+1)
	for j := 1; j <= gridPoints; j++ {
		lost[j] = lost[j-1]
		for i := range j {
			lost[j] = max(lost[j], lost[i]+c.lost(byPrefill, byWork, at(i), at(j)))
		}
	}
	return len(claims) - lost[gridPoints]
}

func sortBy(cs []claim, key func(claim) float64) {
	slices.SortFunc(cs, func(a, b claim) int {
		switch x, y := key(a), key(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// lost counts the claims within [s, t] that do not fit when the smallest go first. Both
// lists hold all claims, in order of prefill and of work.
func (c *Config) lost(byPrefill, byWork []claim, s, t float64) (n int) {
	room := float64(c.Model.Engines)*(t-s) + slack
	i, j := 0, 0
	for {
		for i < len(byPrefill) && (byPrefill[i].from < s || byPrefill[i].prefillBy > t || byPrefill[i].by <= t) {
			i++
		}
		for j < len(byWork) && (byWork[j].from < s || byWork[j].by > t) {
			j++
		}
		var next float64
		switch {
		case i == len(byPrefill) && j == len(byWork):
			return n
		case j == len(byWork) || i < len(byPrefill) && byPrefill[i].prefill <= byWork[j].work:
			next = byPrefill[i].prefill
			i++
		default:
			next = byWork[j].work
			j++
		}
		if next <= room {
			room -= next
		} else {
			n++
		}
	}
}

package control

import "math"

// trial compares two rules on paper: one keeps to the split that is best for what the forecast
// remembers, the other follows the newest span alone. Each is charged with what its split of a
// span before would lose of the newest one, so that following pays for being late. Where one
// split serves all that comes and goes, keeping to it loses nothing; where none does and each
// demand lasts for a while, following loses less.
type trial struct {
	Offered float64    `json:"offered"` // requests that were judged, less what is forgotten
	Lost    [2]float64 `json:"lost"`    // of them, by keeping and by following
	Chosen  [][2]int   `json:"chosen"`  // prefill engines of both over one span, the oldest first
	Follows bool       `json:"follows,omitempty"`
}

const (
	// trialMemory is how many windows a trial remembers.
	trialMemory = 3
	// worth is the share of requests by which following must be better to be taken up.
	worth = 0.04
)

// judge charges both rules and lets them choose anew.
func (t trial) judge(s *State, f *forecast) trial {
	dt := s.Params.Step
	alone := f.blocks[0]
	alone.weight = 1
	now := []block{alone}
	only := func(p int) Score { return f.project(p, now) }
	offered := dt * alone.requests
	n := max(1, int(math.Round(s.span()/dt)))
	if len(t.Chosen) >= n {
		keep := math.Max(0, 1-dt/(trialMemory*s.Params.Window))
		t.Offered = float64(t.Offered*keep) + offered
		for i := range t.Lost {
			t.Lost[i] = float64(t.Lost[i]*keep) + float64(offered*float64(only(t.Chosen[0][i]).Loss))
		}
	}
	next := [2]int{f.p, f.p}
	if len(t.Chosen) > 0 {
		next = t.Chosen[len(t.Chosen)-1]
	}
	next[0] = s.climb(f, next[0], f.split)
	next[1] = s.climb(f, next[1], only)
	chosen := make([][2]int, 0, n)
	if len(t.Chosen) >= n {
		t.Chosen = t.Chosen[len(t.Chosen)-n+1:]
	}
	t.Chosen = append(append(chosen, t.Chosen...), next)
	better := (t.Lost[0] - t.Lost[1]) / math.Max(1, t.Offered)
	t.Follows = better > worth || t.Follows && better > worth/3
	return t
}

// climb finds the best split near one.
func (s *State) climb(f *forecast, p int, of func(int) Score) int {
	most := f.p + f.d - s.Params.MinDecode
	p = min(max(p, s.Params.MinPrefill), most)
	best := of(p)
	for _, by := range []int{-1, 1} {
		from := best
		for q := best.Prefill + by; q >= s.Params.MinPrefill && q <= most; q += by {
			c := of(q)
			if c.Objective >= best.Objective {
				break
			}
			best = c
		}
		if best.Prefill != from.Prefill {
			break
		}
	}
	return best.Prefill
}

package control

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

const (
	// sure is how many times the margin a gain must be for one evaluation to suffice and for
	// several engines to move at once.
	sure = 3
	// steady is how many times the margin a gain must be while the promise holds.
	steady = 3
	// following is how many times the margin a gain must be while the newest span is followed,
	// which is short and therefore uneven.
	following = 3
	// telling is how many times the arrivals that any evidence needs the last interval must have for
	// it to stand for what comes now, while that is followed.
	telling = 2
	// regret is the part of the margin that each unit of the current split's score adds to it:
	// the worse all splits are, the less a difference between two of them says.
	regret = 0.5
	// back is how many times the margin a gain must be to take back a move that the forecast
	// remembers: both splits were the better one within it.
	back = 4
	// mostAtOnce is the largest part of the live engines that moves in one evaluation.
	mostAtOnce = 0.5
)

// ahead compares splits by what they are projected to lose over the window, from the current
// one away in both directions for as long as that falls.
func (s State) ahead(snap model.Snapshot, d Decision, early bool) (State, []Action) {
	f, ok := s.foresee(snap)
	if !ok {
		d.Reason = "no live engine was measured"
		s.run = 0
		return s.finish(d, Move{}, snap)
	}
	f.early = early
	if !early {
		s.excess = s.excess.compare(&s, &f, snap.At)
		s.trial = s.trial.judge(&s, &f)
	}
	if s.trial.Follows {
		if f.last.arrivals >= telling*float64(s.Params.MinArrivals) {
			f.blocks[0] = f.last
		}
		f.weigh(followed)
	}
	f.excess = s.excess
	f.prefer(s.Params, snap)
	current := f.split(f.p)
	best := current
	d.Splits = append(make([]Score, 0, 8), current)
	for _, by := range []int{-1, 1} {
		least := current
		for n := 1; n <= max(1, int(mostAtOnce*float64(f.p+f.d))); n++ {
			p := f.p + by*n
			if p < s.Params.MinPrefill || f.p+f.d-p < s.Params.MinDecode {
				break
			}
			c := f.split(p)
			d.Splits = append(d.Splits, c)
			if c.Objective >= least.Objective {
				break
			}
			if least = c; c.Objective < best.Objective {
				best = c
			}
		}
	}
	return s.choose(snap, &f, current, best, d)
}

// choose takes a better split when the gain is above the margin and has been seen often enough.
func (s State) choose(snap model.Snapshot, f *forecast, current, best Score, d Decision) (State, []Action) {
	gain := gained(current, best)
	d.TTFTRatio, d.TPOTRatio, d.Objective, d.Delta = best.TTFT, best.TPOT, best.Objective, Ratio(gain)
	hold := func(why string) (State, []Action) {
		d.Reason = why
		if !f.early {
			s.run = 0
		}
		return s.finish(d, Move{}, snap)
	}
	pressed := float64(current.Objective) >= s.Params.Expand
	margin := s.Params.Margin * math.Max(1, regret*float64(current.Objective))
	if !pressed {
		margin *= steady
	}
	if s.trial.Follows {
		margin *= following
	}
	// Not while the newest is followed, nor for a move that was made on little evidence and has not
	// been held since.
	held := math.Max(s.lastMove-s.Started, snap.At-s.lastMove)
	if !s.trial.Follows && held >= s.Params.EvidenceSpan && s.takesBack(snap.At, memory*s.Params.Window, current, best) {
		margin *= back
	}
	switch {
	case best.Prefill == current.Prefill || gain < margin:
		return hold("current split is best")
	case float64(current.Objective) <= s.Params.Shrink:
		return hold("no pressure")
	case !pressed && snap.At-math.Max(s.Started, s.lastMove) < s.Params.EvidenceSpan:
		return hold("steady demand not observed long enough")
	}
	at := 1
	rule, required := RuleBreach, s.Params.Confirmations
	switch {
	case !pressed:
		rule, required = RuleSteady, max(s.Params.Confirmations, s.Params.Sustained)
	case gain >= sure*margin:
		at, required = max(best.Prefill-current.Prefill, current.Prefill-best.Prefill), 1
	}
	if s.takesBack(snap.At, s.Params.EvidenceSpan, current, best) {
		if s.trial.Follows { // however much one short span gains: the next says the opposite
			required = max(required, s.Params.Confirmations)
		}
		required *= 2
	}
	if f.early && required > 1 {
		d.Reason = "awaiting its turn"
		return s.finish(d, Move{}, snap)
	}
	if (s.heading-current.Prefill)*(best.Prefill-current.Prefill) <= 0 || s.rule != rule {
		s.run = 0
	}
	s.heading, s.rule = best.Prefill, rule
	s.run++
	d.Rule, d.Confirmations, d.Required = rule, s.run, max(1, required)
	if s.run < d.Required {
		d.Reason = "awaiting confirmation"
		return s.finish(d, Move{}, snap)
	}
	return s.several(snap, f, best, d, at)
}

// takesBack reports whether a split takes back a move of so many seconds before.
func (s State) takesBack(now, within float64, current, best Score) bool {
	to := model.Prefill
	if best.Prefill < current.Prefill {
		to = model.Decode
	}
	return s.lastTo != "" && s.lastTo != to && now-s.lastMove < within
}

// several is apply for up to n engines.
func (s State) several(snap model.Snapshot, f *forecast, best Score, d Decision, n int) (State, []Action) {
	leaver := f.leaver[0]
	if best.Prefill > f.p {
		leaver = f.leaver[1]
	}
	s, acts := s.apply(snap, best, d, leaver)
	first, ok := acts[0].(Move)
	if !ok || n < 2 {
		return s, acts
	}
	all := []Action{first}
	for _, m := range Toward(s.Params, snap, best.Prefill) {
		if len(all) < n && m.Engine != first.Engine {
			all = append(all, Move{Engine: m.Engine, To: m.To, By: first.By, Rule: first.Rule})
		}
	}
	return s, append(all, acts[1:]...)
}

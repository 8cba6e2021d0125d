package drift

import "slices"

// limit is the score above which a window is over.
func (s State) limit(n Engine) float64 { return s.Params.Band * max(n.Baseline, 1) }

// peers are the other engines that were scored within the last two windows. Over are those
// whose score is above their own limit, or above the one of the engine that they excuse: equal
// engines whose pasts differ a little are slow together.
type peers struct {
	scored, over int
	median       float64
}

func (s State) peersOf(engine string, now float64) (p peers) {
	var scores []float64
	limit := s.limit(s.engines[engine])
	for id, n := range s.engines {
		if id == engine || n.Score == 0 || n.ScoredAt < now-2*s.Params.Window {
			continue
		}
		scores = append(scores, n.Score)
		if n.over || n.Score > limit {
			p.over++
		}
	}
	p.scored = len(scores)
	if p.scored == 0 {
		return p
	}
	slices.Sort(scores)
	p.median = (scores[(p.scored-1)/2] + scores[p.scored/2]) / 2
	return p
}

// excused reports whether what slows n slows its peers as much.
func (s State) excused(n Engine, p peers) bool {
	return s.Params.Relative > 0 && p.scored > 0 && 2*p.over >= p.scored && n.Score <= s.Params.Relative*p.median
}

// slow reports whether a residual is over and not its peers' too, of which peer was measured
// beside it. Without anybody to compare with it is not.
func (s State) slow(n Engine, p peers, residual, peer float64) bool {
	switch bar := max(p.median, peer); {
	case residual <= s.limit(n):
		return false
	case s.Params.Relative == 0:
		return true
	default:
		return bar > 0 && residual > s.Params.Relative*bar
	}
}

// Slow reports whether what a probe measured of an engine would count against it.
func (s State) Slow(e Probe) bool {
	return s.Params.Window > 0 && s.slow(s.engines[e.Engine], s.peersOf(e.Engine, e.At), e.Residual, e.Peer)
}

// clean counts a window within the band of an engine on probation.
func (n Engine) clean(p Params) (Engine, Kind) {
	n.overs = 0
	if n.cleans++; n.cleans < p.Recovery {
		return n, Passed
	}
	n.Probation, n.cleans = false, 0
	return n, Recovered
}

// judge counts a window that has just been scored.
func (s State) judge(n Engine, x Sample, p peers) (Engine, Kind) {
	switch {
	case n.over && s.excused(n, p):
		return n, ""
	case n.over:
		n.overs++
		n.cleans = 0
	default:
		if !n.Probation {
			n.overs = 0
			n.Baseline = 0.25*n.Score + 0.75*n.Baseline
			return n, ""
		}
		n, kind := n.clean(s.Params)
		if kind == Passed {
			kind = ""
		}
		return n, kind
	}
	switch {
	case n.overs >= s.Params.Evict && n.Probation && x.Covered:
		return n, Suspect
	case n.overs >= s.Params.Probation && !n.Probation:
		n.Probation = true
		return n, Probation
	}
	return n, ""
}

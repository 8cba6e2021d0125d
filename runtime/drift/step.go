package drift

import (
	"maps"
	"slices"
)

// minute is the time over which ejections are counted, seconds.
const minute = 60

// Step folds one event into the state.
func Step(s State, e Event) (State, []Verdict) {
	if s.Params.Window <= 0 {
		return s, nil
	}
	s.engines = maps.Clone(s.engines)
	if s.engines == nil {
		s.engines = map[string]Engine{}
	}
	switch e := e.(type) {
	case Pass:
		return s.pass(e)
	case Probe:
		return s.probe(e)
	}
	return s, nil
}

// pass closes the windows that are due. All of them are scored before one is judged, so that
// nobody is compared with what its peers were a window ago.
func (s State) pass(e Pass) (State, []Verdict) {
	var due []Sample
	var out []Verdict
	for _, x := range e.Engines {
		n, end := s.engines[x.Engine].sampled(s.Params, x, e.At)
		s.engines[x.Engine] = n
		switch {
		case end == scored:
			due = append(due, x)
		case end == undersampled && n.Probation:
			out = append(out, s.verdict(x.Engine, n, Suspect, 0))
		}
	}
	for _, x := range due {
		n := s.engines[x.Engine]
		if n.Baseline == 0 {
			n.Baseline = max(n.Score, 1)
			if p := s.peersOf(x.Engine, e.At); p.scored > 0 {
				n.Baseline = p.median
			}
		}
		n.over = n.Score > s.limit(n)
		s.engines[x.Engine] = n
	}
	for _, x := range due {
		p := s.peersOf(x.Engine, e.At)
		n, kind := s.judge(s.engines[x.Engine], x, p)
		s.engines[x.Engine] = n
		if kind != "" {
			out = append(out, s.verdict(x.Engine, n, kind, p.median))
		}
	}
	return s, out
}

func (s State) verdict(id string, n Engine, kind Kind, peers float64) Verdict {
	return Verdict{Engine: id, Kind: kind, Score: n.Score, Limit: s.limit(n), Peers: peers}
}

// end is how a window ended.
type end int

const (
	openStill end = iota
	scored
	undersampled
)

// sampled takes one sample into the open window.
func (n Engine) sampled(p Params, x Sample, now float64) (Engine, end) {
	switch {
	case x.Out:
		return n.fresh(), openStill
	case x.Prefills:
		if !n.Paused {
			n.Pauses++
		}
		n.Paused, n.open = true, false
		return n, openStill
	case !n.open:
		// What the sample covers lies before the window.
		n.Paused, n.open, n.from, n.sum, n.samples = false, true, now, 0, 0
		return n, openStill
	}
	if x.Residual > 0 {
		n.sum += x.Residual
		n.samples++
	}
	if now < n.from+p.Window*(1-1e-9) {
		return n, openStill
	}
	how := undersampled
	if n.samples >= max(1, p.MinSamples) {
		how = scored
		n.Scored++
		n.Score, n.ScoredAt = n.sum/float64(n.samples), now
	} else {
		n.Undersampled++
	}
	n.from, n.sum, n.samples = now, 0, 0
	return n, how
}

// fresh is an engine of which only the counts are known.
func (n Engine) fresh() Engine {
	return Engine{Scored: n.Scored, Undersampled: n.Undersampled, Pauses: n.Pauses}
}

// probe counts what a probe of a suspect tells. After windows that were over it decides; in
// place of a window in which nobody decoded it counts as one.
func (s State) probe(e Probe) (State, []Verdict) {
	n, ok := s.engines[e.Engine]
	if !ok || !n.Probation {
		return s, nil
	}
	p := s.peersOf(e.Engine, e.At)
	kind := Kept
	if e.Failed || s.slow(n, p, e.Residual, e.Peer) {
		n.overs, n.cleans = min(n.overs+1, s.Params.Evict), 0
		s.ejected = slices.DeleteFunc(slices.Clone(s.ejected), func(at float64) bool { return at <= e.At-minute })
		if n.overs >= s.Params.Evict && e.Covered && len(s.ejected) < s.Params.PerMinute {
			kind = Eject
			s.ejected = append(s.ejected, e.At)
		}
	} else if n.overs >= s.Params.Evict {
		kind = Passed
		n.overs = min(s.Params.Probation, s.Params.Evict-1)
	} else {
		n, kind = n.clean(s.Params)
	}
	v := s.verdict(e.Engine, n, kind, p.median)
	if kind == Eject {
		n = n.fresh()
	}
	s.engines[e.Engine] = n
	return s, []Verdict{v}
}

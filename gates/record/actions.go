package record

import "slices"

// intend opens an action. A repeated observation replaces its open predecessor,
// since an observation that never ended left nothing; a mutation does not.
func (s *State) intend(ev Event, b Intent) {
	a := Action{Seq: ev.Seq, Time: ev.Time, Gate: ev.Gate, Step: ev.Step, Host: ev.Host, Intent: b}
	if b.Effect == EffectObserve {
		if i := find(s.Unknown, ev, 0); i >= 0 && s.Unknown[i].Effect == EffectObserve {
			s.Unknown = slices.Delete(s.Unknown, i, i+1)
		}
	}
	if s.full() {
		s.Malformed = append(s.Malformed, ev.Seq)
		return
	}
	s.Unknown = append(s.Unknown, a)
}

// full bounds the lists that later events search, so that a hostile log costs bounded time.
func (s *State) full() bool {
	return len(s.Unknown)+len(s.Done)+len(s.Partial) >= MaxActions
}

func (s *State) end(ev Event, b Outcome) {
	i := find(s.Unknown, ev, b.Intent)
	if i < 0 {
		return
	}
	a := s.Unknown[i]
	a.Outcome = &b
	s.Unknown = slices.Delete(s.Unknown, i, i+1)
	switch {
	case a.Effect == EffectObserve:
	case b.Status == StatusOK:
		s.took(a)
	default:
		s.Partial = append(s.Partial, a)
	}
}

func (s *State) resolve(ev Event, b Resolved) {
	i := find(s.Unknown, ev, b.Intent)
	if i < 0 {
		return
	}
	a := s.Unknown[i]
	a.Resolved = &b
	if b.Status == ResolvedUnclear {
		s.Unknown[i] = a
		return
	}
	s.Unknown = slices.Delete(s.Unknown, i, i+1)
	if b.Status == ResolvedDone && a.Effect != EffectObserve {
		s.took(a)
	}
}

// took moves an action to Done; earlier failed tries of the same step are settled by it.
func (s *State) took(a Action) {
	s.Done = append(s.Done, a)
	s.Partial = slices.DeleteFunc(s.Partial, func(o Action) bool {
		return o.Gate == a.Gate && o.Step == a.Step && o.Host == a.Host
	})
}

// forget takes one action out: the newest match of all lists.
func (s *State) forget(place Event, intent int64) {
	var from *[]Action
	at := -1
	for _, list := range []*[]Action{&s.Unknown, &s.Partial, &s.Done} {
		i := find(*list, place, intent)
		if i >= 0 && (from == nil || (*list)[i].Seq > (*from)[at].Seq) {
			from, at = list, i
		}
	}
	if from != nil {
		*from = slices.Delete(*from, at, at+1)
	}
}

// find returns the newest action with that seq, or with seq 0 that gate, step
// and host; an event without a host matches any. -1 for none.
func find(list []Action, place Event, seq int64) int {
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		if seq != 0 {
			if a.Seq == seq {
				return i
			}
			continue
		}
		if a.Gate == place.Gate && a.Step == place.Step && (place.Host == "" || a.Host == place.Host) {
			return i
		}
	}
	return -1
}

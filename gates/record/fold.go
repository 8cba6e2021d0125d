package record

import "slices"

// Fold returns the state after one more event and leaves s as it is.
func Fold(s State, ev Event) State {
	s = s.clone()
	s.apply(ev)
	return s
}

// FoldAll folds events from the empty state.
func FoldAll(events []Event) State {
	var s State
	for _, ev := range events {
		s.apply(ev)
	}
	return s
}

// apply changes s in place: linear in the event, not in the state.
func (s *State) apply(ev Event) {
	s.Seq, s.Last = ev.Seq, ev.Time
	body, err := decodeBody(ev.Kind, ev.Body, false)
	if err != nil {
		s.Malformed = append(s.Malformed, ev.Seq)
		return
	}
	switch b := body.(type) {
	case *Created:
		s.Created, s.Began = *b, ev.Time
		s.mirror(b.Fleet)
	case *Resumed:
		s.Interrupted = nil
		s.Resumes++
	case *Interrupted:
		s.Interrupted = &Stop{Signal: b.Signal, Time: ev.Time}
	case *Repair:
		s.Repairs = append(s.Repairs, *b)
	case *Facts:
		s.learn(b.Values)
	case *Intent:
		s.intend(ev, *b)
	case *Outcome:
		s.end(ev, *b)
	case *Resolved:
		s.resolve(ev, *b)
	case *Undone:
		s.undo(ev, *b)
	case *RollbackStarted, *RollbackStep, *RollbackDone:
		s.rollback(ev, body)
	case *ReplaceStarted, *ReplaceStep, *ReplaceDone:
		s.replace(ev, body)
	default:
		s.applyGate(ev, body)
	}
}

func (s *State) learn(values map[string]string) {
	if s.Facts == nil {
		s.Facts = map[string]string{}
	}
	for k, v := range values {
		s.Facts[k] = v
	}
}

// mirror remembers an object that has a file of its own.
func (s *State) mirror(ref Ref) {
	if s.mirrored == nil {
		s.mirrored = map[string]bool{}
	}
	s.mirrored[ref.SHA256] = true
}

func (s *State) seal(ev Event, b Seal) {
	s.mirror(b.Ref)
	sealed := Sealed{Seal: b, At: ev.Seq, Time: ev.Time}
	if s.Seals == nil {
		s.Seals = map[string]Sealed{}
	}
	s.Seals[ev.Gate] = sealed
	s.gate(ev.Gate, func(g *Gate) { g.Seal = &sealed })
}

// gate changes one gate. Only a letter names a gate; other names have no state.
func (s *State) gate(letter string, change func(*Gate)) {
	if len(letter) != 1 {
		return
	}
	g, ok := s.Gates[letter]
	if !ok {
		g.State = GatePending
	}
	change(&g)
	if s.Gates == nil {
		s.Gates = map[string]Gate{}
	}
	s.Gates[letter] = g
}

func (s *State) applyGate(ev Event, body checker) {
	switch b := body.(type) {
	case *Started:
		s.gate(ev.Gate, func(g *Gate) {
			*g = Gate{State: GateRunning, Started: ev.Time, Evidence: g.Evidence, PlanDigest: g.PlanDigest, Plan: g.Plan}
		})
	case *Plan:
		if ev.Gate == "" {
			s.Plan = *b
			s.mirror(b.Object)
		}
		s.gate(ev.Gate, func(g *Gate) { g.PlanDigest, g.Plan = b.Digest, b.Object })
	case *Evidence:
		s.gate(b.Key.Gate(), func(g *Gate) {
			if g.Evidence == nil {
				g.Evidence = map[Key]Entry{}
			}
			g.Evidence[b.Key] = Entry{Ref: b.Ref, Bonds: b.Bonds, Step: ev.Step, Host: ev.Host, Seq: ev.Seq, Time: ev.Time}
		})
	case *Stale:
		s.gate(b.Key.Gate(), func(g *Gate) {
			g.withdraw(b.Key, b.Because)
			if g.State == VerdictPassed {
				g.State = GateStale
			}
		})
	case *Verdict:
		s.gate(ev.Gate, func(g *Gate) {
			g.State, g.Verdict, g.Findings, g.Details, g.Ended = b.State, b.State, b.Findings, b.Object, ev.Time
		})
	case *Seal:
		s.seal(ev, *b)
	}
}

func (g *Gate) withdraw(key Key, because string) {
	if e, ok := g.Evidence[key]; ok {
		e.Stale, e.Because = true, because
		g.Evidence[key] = e
	}
}

func (g *Gate) withdrawAll(because string) {
	for key, e := range g.Evidence {
		if !e.Stale {
			g.withdraw(key, because)
		}
	}
}

func (s *State) undo(ev Event, b Undone) {
	how := b.How
	if how == "" {
		how = "undone"
	}
	switch {
	case b.Key != "":
		s.gate(b.Key.Gate(), func(g *Gate) {
			g.withdraw(b.Key, how)
			g.State = GateUndone
		})
	case b.Step != "" || b.Intent != 0:
		place := ev
		place.Step = b.Step
		s.forget(place, b.Intent)
		s.gate(ev.Gate, func(g *Gate) { g.State = GateUndone })
	default:
		s.gate(ev.Gate, func(g *Gate) {
			g.withdrawAll(how)
			g.State = GateUndone
		})
	}
}

func (s *State) rollback(ev Event, body checker) {
	switch b := body.(type) {
	case *RollbackStarted:
		s.Rollback = &Rollback{To: b.To, Plan: b.Plan, Seq: ev.Seq, Started: ev.Time}
		s.Replacement, s.Left = nil, Left{} // what it replaced is taken back, or repaired
	case *RollbackStep:
		if b.Status == RollbackOK && b.Intent != 0 {
			s.forget(ev, b.Intent)
		}
		if s.Rollback == nil {
			return
		}
		i := slices.IndexFunc(s.Rollback.Steps, func(o RollbackStep) bool { return o.ID == b.ID })
		if i < 0 {
			s.Rollback.Steps = append(s.Rollback.Steps, *b)
		} else {
			s.Rollback.Steps[i] = *b
		}
	case *RollbackDone:
		for _, letter := range b.Rerun {
			s.gate(letter, func(g *Gate) {
				g.withdrawAll("rolled back")
				if g.State != GatePending {
					g.State = GateUndone
				}
			})
		}
		if s.Rollback != nil {
			s.Rollback.Done, s.Rollback.Ended = b, ev.Time
			s.LastRollback, s.Rollback = s.Rollback, nil
		}
	}
}

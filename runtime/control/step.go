package control

import (
	"fmt"
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Step folds one event into the state. Only a Tick yields actions: moves, several only where
// engines lend and then for at most half of them, and one Record when it evaluates.
func Step(s State, e Event) (State, []Action) {
	switch e := e.(type) {
	case Arrival:
		return s.arrive(e), nil
	case Miss:
		return s.miss(e), nil
	case Outcome:
		s.outputs = s.outputs.learn(e)
		return s, nil
	case Tick:
		return s.tick(e.Snapshot)
	}
	return s, nil
}

func (s State) tick(snap model.Snapshot) (State, []Action) {
	now := snap.At
	s = s.roll(now)
	l := measure(snap.Engines, now)
	if move, by, ok := s.repair(snap, l); ok {
		return s.finish(s.floorDecision(now, l, move, by), move, snap)
	}
	// The split that was right with an engine more may not be: that does not wait for its turn.
	fewer := l.p+l.d < s.live
	if l.p+l.d != s.live {
		s.live, s.liveSince, s.excess = l.p+l.d, now, nil
	}
	due := !s.ticked || now >= s.lastTick+s.Params.Step*(1-1e-9) || fewer
	if !due && !s.young(now) {
		return s, nil
	}
	if due {
		s.ticked, s.lastTick = true, now
	}
	return s.evaluate(snap, l, !due)
}

// young reports whether a split that nothing speaks for is judged at every tick as well: that of the
// start, where engines lend, until a demand has lasted long enough to be believed. Between two
// evaluations it is left only for a gain that one of them would suffice for.
func (s State) young(now float64) bool {
	return s.Params.Lends && s.lastTo == "" && now-s.Started < s.span()
}

// repair restores a floor at once: a role with too few live engines takes one from the
// other, if that keeps its own floor. A fleet in which nobody holds the prefill role is
// aggregated on purpose and left alone.
func (s State) repair(snap model.Snapshot, l load) (Move, string, bool) {
	switch {
	case s.Params.Advisory:
	case l.d < s.Params.MinDecode && l.p > s.Params.MinPrefill:
		if e, ok := donor(s.Params, snap, model.Prefill, false); ok {
			return Move{Engine: e, To: model.Decode, By: ByDecodeFloor, Rule: RuleFloor}, ByDecodeFloor, true
		}
	case l.hasPrefill && l.p < s.Params.MinPrefill && l.d > s.Params.MinDecode:
		if e, ok := donor(s.Params, snap, model.Decode, false); ok {
			return Move{Engine: e, To: model.Prefill, By: ByFloorRecovery, Rule: RuleFloor}, ByFloorRecovery, true
		}
	}
	return Move{}, "", false
}

// guesses reports whether the lengths of answers, which decide how much decoding is asked for, are
// still what clients allow: less than half of the requests have ended, the short ones first, the
// start is less than a cooldown ago, and decoding was lacking for too few to be sure.
func (s State) guesses(now float64, arrivals int) bool {
	if s.missed(now, s.span())[1] >= float64(s.Params.MinArrivals) {
		return false
	}
	return 2*s.outputs.Seen < arrivals && now-s.Started < s.Params.Cooldown
}

func (s State) floorDecision(now float64, l load, m Move, by string) Decision {
	d := Decision{At: now, By: by, Reason: "restore " + string(m.To) + " floor", Rule: RuleFloor,
		CurrentPrefill: l.p, CurrentDecode: l.d, Prefill: l.p + 1, Decode: l.d - 1}
	if m.To == model.Decode {
		d.Prefill, d.Decode = l.p-1, l.d+1
	}
	return d
}

// evaluate judges the split. An early evaluation, between two that are due, counts as no confirmation
// and ends no run of them.
func (s State) evaluate(snap model.Snapshot, l load, early bool) (State, []Action) {
	par := s.Params
	needed := max(par.Confirmations, par.Sustained)
	fast := s.demand(snap.Engines, snap.At, math.Min(par.Window, par.Step*float64(max(needed, 1))))
	slow := s.demand(snap.Engines, snap.At, par.Window)
	if fast.Arrivals < par.MinArrivals {
		fast = slow
	}
	d := Decision{At: snap.At, By: ByReactive, Result: Held, Prefill: l.p, Decode: l.d, CurrentPrefill: l.p, CurrentDecode: l.d,
		PrefillWork: Ratio(fast.Prefill), DecodeWork: Ratio(fast.Decode), Arrivals: fast.Arrivals, Outputs: s.outputs.Seen,
		Complete: fast.Complete, Horizon: Ratio(fast.Span), SteadyPrefill: Ratio(slow.Prefill), SteadyDecode: Ratio(slow.Decode)}
	if why := s.unjudgeable(l, fast); why != "" {
		d.Reason = why
		if !early {
			s.run = 0
		}
		return s.finish(d, Move{}, snap)
	}
	if par.Lends {
		return s.ahead(snap, d, early)
	}
	return s.compare(snap, l, fast, slow, d)
}

// unjudgeable says why the evidence does not suffice for any move.
func (s State) unjudgeable(l load, dem Demand) string {
	switch {
	case l.p == 0 || l.d == 0:
		return "a role has no live engine"
	case dem.Arrivals < s.Params.MinArrivals:
		return "insufficient demand history"
	case !dem.Complete:
		return "demand of unknown length"
	case dem.Prefill+dem.Decode < s.Params.DemandFloor:
		return "demand below the floor"
	}
	return ""
}

func (s State) compare(snap model.Snapshot, l load, fast, slow Demand, d Decision) (State, []Action) {
	current := score(s.Params, l, fast, l.p, l.d)
	best := current
	d.Splits = append(d.Splits, current)
	for _, p := range []int{l.p - 1, l.p + 1} {
		c := score(s.Params, l, fast, p, l.p+l.d-p)
		d.Splits = append(d.Splits, c)
		if p >= s.Params.MinPrefill && c.Decode >= s.Params.MinDecode && c.Objective < best.Objective {
			best = c
		}
	}
	d.TTFTRatio, d.TPOTRatio, d.Objective = best.TTFT, best.TPOT, best.Objective
	gain := gained(current, best)
	d.Delta = Ratio(gain)
	if best.Prefill == l.p || gain < s.Params.Margin {
		d.Reason = "current split is best"
		s.run = 0
		return s.finish(d, Move{}, snap)
	}
	rule, required, why := s.eligible(snap.At, l, current, best, slow)
	if why != "" {
		d.Reason = why
		s.run = 0
		return s.finish(d, Move{}, snap)
	}
	if s.heading != best.Prefill || s.rule != rule {
		s.run = 0
	}
	s.heading, s.rule = best.Prefill, rule
	s.run++
	d.Rule, d.Confirmations, d.Required = rule, s.run, required
	if s.run < required {
		d.Reason = "awaiting confirmation"
		return s.finish(d, Move{}, snap)
	}
	return s.apply(snap, best, d, "")
}

// eligible finds the rule under which a better split may be taken, and the evaluations it
// must hold for. A reversal of a recent move must hold for twice as long.
func (s State) eligible(now float64, l load, current, best Score, slow Demand) (rule string, required int, why string) {
	required = max(s.Params.Confirmations, s.Params.Sustained)
	switch {
	case float64(current.Objective) >= s.Params.Expand:
		rule, required = RuleBreach, s.Params.Confirmations
	case float64(current.Objective) <= s.Params.Shrink:
		return "", 0, "no pressure"
	case now-math.Max(s.Started, s.lastMove) < s.Params.EvidenceSpan:
		return "", 0, "steady demand not observed long enough"
	case gained(score(s.Params, l, slow, l.p, l.d), score(s.Params, l, slow, best.Prefill, best.Decode)) < s.Params.Margin:
		return "", 0, "horizons disagree"
	default:
		rule = RuleSteady
	}
	to := model.Prefill
	if best.Prefill < l.p {
		to = model.Decode
	}
	if s.lastTo != "" && s.lastTo != to && now-s.lastMove < s.Params.EvidenceSpan {
		required *= 2
	}
	return rule, max(1, required), ""
}

func gained(from, to Score) float64 {
	if math.IsInf(float64(from.Objective), 1) {
		if math.IsInf(float64(to.Objective), 1) {
			return 0
		}
		return math.MaxFloat64
	}
	return float64(from.Objective - to.Objective)
}

// apply checks the guards of a confirmed move, most telling first, and moves the engine
// that is named, or the one that has least to lose.
func (s State) apply(snap model.Snapshot, best Score, d Decision, leaver string) (State, []Action) {
	d.Prefill, d.Decode = best.Prefill, best.Decode
	from, to := model.Decode, model.Prefill
	if best.Prefill < d.CurrentPrefill {
		from, to = model.Prefill, model.Decode
	}
	if to == model.Decode && (snap.At-s.lastToDecode < s.Params.Cooldown || s.guesses(snap.At, d.Arrivals)) {
		d.Result, d.Reason = Blocked, "cooldown"
		return s.finish(d, Move{}, snap)
	}
	e, ok := leaver, leaver != ""
	if !ok {
		e, ok = donor(s.Params, snap, from, true)
	}
	if !ok {
		d.Result, d.Reason = Blocked, "no eligible donor"
		return s.finish(d, Move{}, snap)
	}
	d.Reason = fmt.Sprintf("%d prefill, %d decode is projected better", best.Prefill, best.Decode)
	return s.finish(d, Move{Engine: e, To: to, By: d.By, Rule: d.Rule}, snap)
}

// donor picks the live unpinned engine of a role that keeps its promise of dwell and loses
// least: first one that still works for the other phase, then the least resident work.
func donor(par Params, snap model.Snapshot, role model.Role, guard bool) (string, bool) {
	found := -1
	for i := range snap.Engines {
		e := &snap.Engines[i]
		switch {
		case !e.Live || e.Role != role || !leaves(par, e, snap.At, guard):
		case found < 0 || lighter(e, &snap.Engines[found], snap.At):
			found = i
		}
	}
	if found < 0 {
		return "", false
	}
	return snap.Engines[found].ID, true
}

// leaves reports whether an engine may leave its role.
func leaves(par Params, e *model.EngineView, now float64, guard bool) bool {
	switch {
	case e.Pinned:
	case now-e.RoleSince < par.Dwell && (guard || e.Role == model.Prefill):
	case guard && e.Role == model.Decode && par.ResidentGuard > 0 && e.DecodeRequests > par.ResidentGuard:
	default:
		return true
	}
	return false
}

func lighter(a, b *model.EngineView, now float64) bool {
	ka, wa := burden(a, now)
	kb, wb := burden(b, now)
	if ka != kb {
		return ka < kb
	}
	if wa != wb {
		return wa < wb
	}
	return a.ID < b.ID
}

func burden(e *model.EngineView, now float64) (class int, work float64) {
	if e.Role == model.Prefill {
		if e.DecodeRequests > 0 {
			return 0, e.Backlog(now)
		}
		return 1, e.Backlog(now)
	}
	if e.Backlog(now) > 0 {
		return 0, float64(e.DecodeTokens)
	}
	return 1, float64(e.DecodeTokens)
}

// finish turns a decision and an optional move into actions and remembers the move.
func (s State) finish(d Decision, m Move, snap model.Snapshot) (State, []Action) {
	if m.Engine == "" {
		return s, []Action{Record{d}}
	}
	d.Engine = m.Engine
	s.run = 0
	if s.Params.Advisory {
		d.Result = Advisory
		return s, []Action{Record{d}}
	}
	d.Result, d.Applied = Applied, true
	s.lastMove, s.lastTo = snap.At, m.To
	if m.To == model.Decode {
		s.lastToDecode = snap.At
	}
	return s, []Action{m, Record{d}}
}

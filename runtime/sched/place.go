package sched

import (
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Admit places a request or refuses it when no pair of engines keeps the promise. In
// open mode it refuses only what no engine can hold. Decode engines help with the prefill where
// that would be slow otherwise, and take it whole where they hold enough of the prompt for that
// to be cheaper. Prefill engines that have little to do decode what no decode engine can take. x may be nil.
func Admit(s *model.Snapshot, r *model.Request, now float64, x *Scratch) Decision {
	w := weigh(s, r, now, x)
	found := w.whole(w.lasting())
	if !found && w.thins() {
		found = w.lasting()
	}
	if (!found || w.slow()) && w.lend() {
		found = w.lasting()
	}
	if found || s.Params.Open && w.pick(true) || w.host() {
		return w.placed()
	}
	return w.refused()
}

// Place chooses a pair without judging lateness: for retries, whose first attempt was
// admitted. It prefers pairs within the promise and refuses only when nobody can hold
// the request. x may be nil.
func Place(s *model.Snapshot, r *model.Request, now float64, x *Scratch) Decision {
	w := weigh(s, r, now, x)
	if w.whole(w.pick(false)) || w.pick(true) {
		return w.placed()
	}
	return w.refused()
}

// weighing is one decision in the making.
type weighing struct {
	x       *Scratch
	s       *model.Snapshot
	r       *model.Request
	now     float64
	elapsed float64
	ps, ds  []Side
	same    bool // pairs of one engine with itself only
	shared  bool // an engine may be on both sides
	stands  bool // engines of one role stand in for the other, which has none
	own     int  // prefill engines; who lends comes after them
	i, j    int  // the pair that was picked
	late    bool
	hash    uint64 // of the request
	seats   int    // of the request
	answer  int    // its expected tokens, at least 1, and of each of its sequences
	each    int
}

func weigh(s *model.Snapshot, r *model.Request, now float64, x *Scratch) weighing {
	if x == nil {
		x = &Scratch{}
	}
	if n := len(s.Engines); min(cap(x.prefills), cap(x.decodes)) < n {
		x.prefills, x.decodes = make([]Side, 0, n), make([]Side, 0, n) // a lender is on both sides: n of each suffice
	}
	w := weighing{x: x, s: s, r: r, now: now, elapsed: max(0, now-r.Arrived), ps: x.prefills[:0], ds: x.decodes[:0], same: r.Unsplit, hash: fnv(14695981039346656037, r.ID)}
	w.seats, w.answer = r.Seats(), max(1, r.Expected)
	w.each = (w.answer + w.seats - 1) / w.seats
	standInP, standInD := false, false
	if !w.same {
		p, d := w.usable()
		standInP, standInD = !p, !d
	}
	w.stands = standInP || standInD
	w.shared = w.same || w.stands
	for i := range s.Engines {
		e := &s.Engines[i]
		if !e.Live {
			continue
		}
		stands := !e.Pinned && !s.Params.FixedRoles
		if w.same || e.Role == model.Prefill || standInP && stands {
			w.prefill(side(&w.ps, e.ID, i), e)
		}
		if w.same || e.Role == model.Decode || standInD && stands {
			w.decode(side(&w.ds, e.ID, i), e)
		}
	}
	w.spread()
	w.own = len(w.ps)
	x.prefills, x.decodes = w.ps, w.ds
	return w
}

func (w *weighing) placed() Decision {
	p, d := &w.ps[w.i], &w.ds[w.j]
	v := w.decision(p, d)
	v.Placed, v.Prefill, v.Decode, v.OverBudget = true, p.Engine, d.Engine, w.late
	return v
}

// decision describes a pair.
func (w *weighing) decision(p, d *Side) Decision {
	parts := d.Parts
	if p.index == d.index {
		parts.Handoff, parts.Overlap, parts.Penalty = 0, 0, 0
	}
	return Decision{Parts: p.Parts.plus(parts), Own: p.Parts.Prefill, Cached: p.Cached, CachedDecode: d.Cached, Price: w.price(p, d), Elapsed: w.elapsed, Prefills: w.ps, Decodes: w.ds}
}

package sched

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// side adds an engine to a list that has room for it, where it is: a Side is too large to be copied for
// each engine.
func side(list *[]Side, id string, index int) *Side {
	n := len(*list)
	*list = (*list)[:n+1]
	c := &(*list)[n]
	*c = Side{Engine: id, index: index}
	return c
}

// usable reports which roles have a live engine that has not failed this request. For one
// without, live unpinned engines of the other role stand in.
func (w *weighing) usable() (prefill, decode bool) {
	for i := range w.s.Engines {
		switch e := &w.s.Engines[i]; {
		case prefill && decode:
			return prefill, decode
		case !e.Live:
		case e.Role == model.Prefill:
			prefill = prefill || !slices.Contains(w.r.AvoidPrefill, e.ID)
		case e.Role == model.Decode:
			decode = decode || !slices.Contains(w.r.AvoidDecode, e.ID)
		}
	}
	return prefill, decode
}

// mostWarm is from how many waiting prefills on an engine does not count as having any of the
// prompt. What it is believed to hold may be gone, and is for all that wait once it is for the
// first: the queue would be ten times what it seems. docs/evaluation.md has what caches are worth.
const mostWarm = 6

// prefill prices an engine's prefill leg.
func (w *weighing) prefill(c *Side, e *model.EngineView) {
	switch {
	case len(w.r.AvoidPrefill) > 0 && slices.Contains(w.r.AvoidPrefill, e.ID):
		c.Dropped = model.ReasonAvoided
	case !e.Curve.Measured():
		c.Dropped = model.ReasonUnprofiled
	case full(e, w.r):
		c.Dropped = model.ReasonKVCapacity
	}
	if e.PrefillRequests < mostWarm {
		c.Cached = w.r.Held(c.index)
	}
	own := e.Warm(w.r.Input, c.Cached)
	c.Parts = Parts{Queue: e.Backlog(w.now), Prefill: own, Stall: float64(own * float64(e.DecodeRequests)), Penalty: e.Penalty}
	c.Cost = c.Parts.Total()
	c.alone = float64(own * max(1, e.Risk))
	c.Price = c.Parts.Queue + c.alone
	c.micro = micro(c.Cost)
}

// decode prices an engine's decode leg.
func (w *weighing) decode(c *Side, e *model.EngineView) {
	switch {
	case len(w.r.AvoidDecode) > 0 && slices.Contains(w.r.AvoidDecode, e.ID):
		c.Dropped = model.ReasonAvoided
	case !e.Curve.Measured():
		c.Dropped = model.ReasonUnprofiled
	}
	r, kappa := w.r, e.Kappa()
	c.Cached = r.Held(c.index)
	n := w.seats
	after := float64(kappa * e.Curve.Interval(e.DecodeRequests+n, e.DecodeTokens+r.Input))
	c.Parts.Decode = float64(float64(w.each) * after)
	if e.DecodeRequests > 0 {
		before := float64(kappa * e.Curve.Interval(e.DecodeRequests, e.DecodeTokens))
		c.Parts.Slow = float64(max(0, after-before) * float64(e.DecodeRemaining))
	}
	if !w.same {
		c.Parts.Handoff, c.Parts.Overlap, c.Parts.Penalty = w.s.Handoff, e.Backlog(w.now), e.Penalty
		if c.Cached > 0 && !w.s.Params.FixedRoles {
			c.Parts.Handoff *= 1 - float64(c.Cached)/float64(r.Input) // only what it lacks is read
		}
	}
	c.ahead = c.Parts.Handoff + c.Parts.Overlap
	c.apart = c.ahead + c.Parts.Penalty
	c.Cost = c.Parts.Total()
	c.Price = c.ahead + after
	c.Interval, c.pace = after, after
	c.micro = micro(c.Cost)
	all := seats(e)
	c.taken, c.seats = e.DecodeRequests, all
	c.tight = e.DecodeRequests+max(1, min(n, all)) > all || e.DecodeTokens+e.Held+r.Input+w.answer > e.Curve.TokenLimit()
	// A request that misses even on an idle engine is not the batch's fault.
	if par := &w.s.Params; c.Dropped == "" && after > par.TPOT && float64(kappa*e.Curve.Interval(n, r.Input)) <= par.TPOT {
		c.Dropped = model.ReasonTPOT
	}
}

func micro(seconds float64) int64 { return int64(float64(seconds*1e6) + 0.5) }

func seats(e *model.EngineView) int {
	if e.DecodeSeats > 0 {
		return min(e.Curve.MaxRequests, e.DecodeSeats)
	}
	return e.Curve.MaxRequests
}

// takes is how many seats of an engine a request needs. Of more sequences than it has seats the
// rest waits in the engine.
func takes(e *model.EngineView, r *model.Request) int { return max(1, min(r.Seats(), seats(e))) }

// full reports whether KV that P holds for handoffs leaves no room for another prompt: such
// blocks cannot be evicted before they are read or their lease ends.
func full(p *model.EngineView, r *model.Request) bool {
	return p.Curve.KVCapacity > 0 && p.Held > 0 && p.Held+p.DecodeTokens+r.Input > p.Curve.KVCapacity
}

package sched

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Admit places a request or refuses it when no pair of engines keeps the promise. In
// open mode it refuses only what no engine can hold. Decode engines help with the prefill where
// that would be slow otherwise, and take it whole where they hold enough of the prompt for that
// to be cheaper. x may be nil.
func Admit(s *model.Snapshot, r *model.Request, now float64, x *Scratch) Decision {
	w := weigh(s, r, now, x)
	found := w.whole(w.lasting())
	if !found && w.thins() {
		found = w.lasting()
	}
	if (!found || w.slow()) && w.lend() {
		found = w.lasting()
	}
	if found || s.Params.Open && w.pick(true) {
		return w.placed()
	}
	return w.refused()
}

// slow reports whether the prefill of the picked pair waits long enough for decode engines to
// help.
func (w *weighing) slow() bool {
	return w.ps[w.i].Parts.Queue > w.s.Params.Lend*w.s.Params.TTFT
}

// lend adds decode engines whose residents can bear the prefill, and reports whether there are
// any. An engine that takes it decodes it too, or hands it over.
func (w *weighing) lend() bool {
	if !w.lends() {
		return false
	}
	w.ps = w.ps[:w.own] // who holds some of the prompt is among them again
	for j := range w.ds {
		w.shared = w.lender(j) || w.shared
	}
	w.x.prefills = w.ps
	return w.shared
}

// lends reports whether decode engines may take prefills.
func (w *weighing) lends() bool {
	return w.s.Params.Lend > 0 && !w.s.Params.FixedRoles && !w.shared
}

// lender adds a decode engine to the prefill side if its residents can bear the prefill, and
// reports whether they can.
func (w *weighing) lender(j int) bool {
	index := w.ds[j].index
	e := &w.s.Engines[index]
	if e.Pinned || e.Later == nil {
		return false
	}
	w.ps = append(w.ps, Side{Engine: e.ID, index: index})
	c := &w.ps[len(w.ps)-1]
	w.prefill(c, e)
	if c.Dropped != "" || e.Later.Slack(w.now, &w.s.Params) < c.Parts.Prefill {
		w.ps = w.ps[:len(w.ps)-1]
		return false
	}
	return true
}

// whole picks a decode engine that holds some of the prompt for both phases, where that costs
// no more than the pair that was found, and reports whether there is a pair. Without the
// transfer, and with a short tail to prefill, it can be the cheapest however idle the prefill
// engines are.
func (w *weighing) whole(found bool) bool {
	if w.r.Cached == nil || !w.lends() {
		return found
	}
	best := int64(math.MaxInt64)
	if found {
		best = w.ps[w.i].micro + w.ds[w.j].micro
	}
	none := true
	for j := range w.ds {
		d := &w.ds[j]
		if d.Cached == 0 || d.Dropped != "" || !w.lender(j) {
			continue
		}
		i := len(w.ps) - 1
		p := &w.ps[i]
		cost := micro(p.Cost + d.Cost - d.apart)
		if cost > best || cost == best && !none && !w.sooner(d, &w.ds[w.j]) || !w.fits(p, d, false) {
			continue
		}
		w.i, w.j, best, none = i, j, cost, false
	}
	if none {
		w.ps = w.ps[:w.own]
	}
	w.x.prefills = w.ps
	return found || !none
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
	w.shared = w.same || standInP || standInD
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
	w.own = len(w.ps)
	x.prefills, x.decodes = w.ps, w.ds
	return w
}

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

// room names what D lacks to hold the request at the moment its prefill on P is expected to
// end. Residents that will have left by then free their seats.
func (w *weighing) room(p, d *Side) model.Reason {
	if d.from > p.ends() && !w.late {
		return model.ReasonTPOT
	}
	if !d.tight {
		return ""
	}
	e := &w.s.Engines[d.index]
	free := w.free(p, d)
	requests, tokens := e.Occupied(free, w.joins(p, d, free), d.pace)
	switch {
	case requests+takes(e, w.r) > seats(e):
		return model.ReasonSlotWait
	case tokens+e.Held+w.r.Input+max(1, w.r.Expected) > e.Curve.TokenLimit() && requests > 0:
		return model.ReasonKVCapacity
	}
	return ""
}

// free is when the decode engine of a pair has done its prefill work, with that of the request if it
// takes it. Until then its residents stand still and none of them leaves.
func (w *weighing) free(p, d *Side) float64 {
	if p.index == d.index {
		return w.now + p.ends()
	}
	return w.now + w.s.Engines[d.index].Backlog(w.now)
}

// joins is when the request can be in the batch of an engine that is free at a moment.
func (w *weighing) joins(p, d *Side, free float64) float64 {
	if p.index == d.index {
		return free
	}
	return max(free, w.now+p.ends()+d.Parts.Handoff)
}

// price is a pair's projected time to the first token since arrival.
func (w *weighing) price(p, d *Side) float64 {
	v := w.elapsed + p.Price + d.Price
	if p.index == d.index {
		v -= d.ahead
	}
	return v
}

// pick finds a pair, of those within the promise unless late: the cheapest, or one that costs
// hardly more. Among those who holds more of the prompt is taken, then a hash of the request and
// the engine decides, so that an idle fleet is used evenly although no two engines are measured
// alike.
func (w *weighing) pick(late bool) bool {
	w.late = late
	if w.shared {
		return w.pickShared(late)
	}
	if !w.cheapest(late) {
		return false
	}
	p, d := &w.ps[w.i], &w.ds[w.j]
	hardly := (p.micro + d.micro) / hardlyMore
	atP, atD := p.micro+hardly, d.micro+hardly
	for i := range w.ps {
		if c := &w.ps[i]; c.micro <= atP && open(c, late) && w.sooner(c, &w.ps[w.i]) && w.fits(c, d, late) {
			w.i = i
		}
	}
	p = &w.ps[w.i]
	for j := range w.ds {
		if c := &w.ds[j]; c.micro <= atD && open(c, late) && w.sooner(c, &w.ds[w.j]) && w.fits(p, c, late) {
			w.j = j
		}
	}
	return true
}

// hardlyMore is the part of a cost by which another one counts as equal, on each side.
const hardlyMore = 256

// fits reports whether a pair holds the request, and within the promise unless late.
func (w *weighing) fits(p, d *Side, late bool) bool {
	return (late || w.price(p, d) <= w.s.Params.Budget()) && w.room(p, d) == ""
}

// cheapest finds the cheapest pair; sooner decides between equal costs.
func (w *weighing) cheapest(late bool) bool {
	first, least, soonest := -1, int64(math.MaxInt64), math.Inf(1)
	for j := range w.ds {
		if d := &w.ds[j]; open(d, late) {
			least, soonest = min(least, d.micro), min(soonest, d.Price)
		}
	}
	if least == math.MaxInt64 {
		return false
	}
	for i := range w.ps {
		if p := &w.ps[i]; open(p, late) && (first < 0 || w.better(p.micro, p, nil, w.ps[first].micro, &w.ps[first], nil)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	budget := w.s.Params.Budget()
	best, found := int64(0), false
	row := func(i int) {
		p := &w.ps[i]
		if !open(p, late) || !late && w.elapsed+p.Price+soonest > budget || found && p.micro+least > best {
			return
		}
		for j := range w.ds {
			d := &w.ds[j]
			cost := p.micro + d.micro
			if found && cost > best || !open(d, late) {
				continue
			}
			if found && !w.better(cost, p, d, best, &w.ps[w.i], &w.ds[w.j]) || !w.fits(p, d, late) {
				continue
			}
			w.i, w.j, best, found = i, j, cost, true
		}
	}
	row(first)
	if found && best == w.ps[first].micro+least {
		return true // nothing is cheaper, and ties were settled
	}
	for i := range w.ps {
		if i != first {
			row(i)
		}
	}
	return found
}

// pickShared is pick where an engine may be on both sides.
func (w *weighing) pickShared(late bool) bool {
	best, found := int64(0), false
	w.pairs(late, func(i, j int, cost int64) {
		p, d := &w.ps[i], &w.ds[j]
		if (!found || w.better(cost, p, d, best, &w.ps[w.i], &w.ds[w.j])) && w.fits(p, d, late) {
			w.i, w.j, best, found = i, j, cost, true
		}
	})
	most := best + best/hardlyMore
	w.pairs(late, func(i, j int, cost int64) {
		p, d := &w.ps[i], &w.ds[j]
		if found && cost <= most && w.better(0, p, d, 0, &w.ps[w.i], &w.ds[w.j]) && w.fits(p, d, late) {
			w.i, w.j = i, j
		}
	})
	return found
}

// pairs yields the pairs that may be chosen, with their costs in microseconds.
func (w *weighing) pairs(late bool, yield func(i, j int, cost int64)) {
	for i := range w.ps {
		for j := range w.ds {
			p, d := &w.ps[i], &w.ds[j]
			if w.same && p.index != d.index || !open(p, late) || !open(d, late) {
				continue
			}
			cost := p.micro + d.micro
			if p.index == d.index {
				cost = micro(p.Cost + d.Cost - d.apart)
			}
			yield(i, j, cost)
		}
	}
}

// open reports whether a side may be chosen. Lateness alone drops nobody when late.
func open(c *Side, late bool) bool { return c.Dropped == "" || late && c.Dropped == model.ReasonTPOT }

// better reports whether pair a goes before pair b; d may be nil on both.
func (w *weighing) better(a int64, ap, ad *Side, b int64, bp, bd *Side) bool {
	if a != b {
		return a < b
	}
	if ap.index != bp.index {
		return w.sooner(ap, bp)
	}
	return ad != nil && ad.index != bd.index && w.sooner(ad, bd)
}

// sooner orders two engines for this request: who holds more of its prompt, then by lot.
func (w *weighing) sooner(a, b *Side) bool {
	if a.Cached != b.Cached {
		return a.Cached > b.Cached
	}
	if x, y := w.lot(a), w.lot(b); x != y {
		return x < y
	}
	return a.Engine < b.Engine
}

// lot is drawn from the names of the request and the engine, once.
func (w *weighing) lot(c *Side) uint64 {
	if c.lot == 0 {
		c.lot = max(1, tie(w.hash, c.Engine))
	}
	return c.lot
}

func tie(request uint64, engine string) uint64 {
	x := fnv(request, engine)
	// FNV's low bits differ little between short keys that end alike; mix them.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

func fnv(x uint64, s string) uint64 {
	for i := range len(s) {
		x = (x ^ uint64(s[i])) * 1099511628211
	}
	return x * 1099511628211 // the end of the string
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

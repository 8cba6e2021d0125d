package sched

import (
	"hash/fnv"
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Admit places a request or refuses it when no pair of engines keeps the promise. In
// open mode it refuses only what no engine can hold.
func Admit(s model.Snapshot, r model.Request, now float64) Decision {
	d := weigh(s, r, now)
	i := best(d.Candidates, r.ID, func(c Candidate) bool { return c.Dropped == "" })
	if i >= 0 {
		return d.choose(i)
	}
	if s.Params.Open {
		return Place(s, r, now)
	}
	d.refuse(s)
	return d
}

// Place chooses a pair without judging lateness: for retries, whose first attempt was
// admitted. It prefers pairs within the promise and refuses only when nobody can hold
// the request.
func Place(s model.Snapshot, r model.Request, now float64) Decision {
	d := weigh(s, r, now)
	if i := best(d.Candidates, r.ID, func(c Candidate) bool { return c.Dropped == "" }); i >= 0 {
		return d.choose(i)
	}
	if i := best(d.Candidates, r.ID, func(c Candidate) bool { return late(c.Dropped) }); i >= 0 {
		d.OverBudget = true
		return d.choose(i)
	}
	d.refuse(s)
	return d
}

// late reports whether a reason only says that the promise would be missed.
func late(r model.Reason) bool {
	return r == model.ReasonQueue || r == model.ReasonPrompt || r == model.ReasonTPOT
}

func weigh(s model.Snapshot, r model.Request, now float64) Decision {
	d := Decision{Elapsed: max(0, now-r.Arrived)}
	ps, ds, same := pools(s, r)
	for _, p := range ps {
		for _, q := range ds {
			if same && p != q {
				continue
			}
			d.Candidates = append(d.Candidates, price(s, r, now, &s.Engines[p], &s.Engines[q]))
		}
	}
	return d
}

// pools lists the engines that may prefill and those that may decode. A role without a live
// engine that has not failed this request falls back to live unpinned engines of the other.
// same restricts to pairs of one engine with itself.
func pools(s model.Snapshot, r model.Request) (ps, ds []int, same bool) {
	if r.Unsplit {
		for i := range s.Engines {
			if s.Engines[i].Live {
				ps = append(ps, i)
			}
		}
		return ps, ps, true
	}
	return pool(s, model.Prefill, r.AvoidPrefill), pool(s, model.Decode, r.AvoidDecode), false
}

func pool(s model.Snapshot, role model.Role, avoid []string) (own []int) {
	var other []int
	usable := false
	for i := range s.Engines {
		switch e := &s.Engines[i]; {
		case !e.Live:
		case e.Role == role:
			own = append(own, i)
			usable = usable || !slices.Contains(avoid, e.ID)
		case !e.Pinned && !s.Params.FixedRoles:
			other = append(other, i)
		}
	}
	if !usable {
		return append(own, other...)
	}
	return own
}

// price computes a pair's cost parts, its projected first token and interval, and the
// first reason that drops it.
func price(s model.Snapshot, r model.Request, now float64, p, d *model.EngineView) Candidate {
	c := Candidate{Prefill: p.ID, Decode: d.ID}
	switch {
	case slices.Contains(r.AvoidPrefill, p.ID), slices.Contains(r.AvoidDecode, d.ID):
		c.Dropped = model.ReasonAvoided
		return c
	case !p.Curve.Measured() || !d.Curve.Measured():
		c.Dropped = model.ReasonUnprofiled
		return c
	case full(p, r):
		c.Dropped = model.ReasonKVCapacity
		return c
	}
	own := p.Curve.Prefill(r.Input)
	output := max(1, r.Expected)
	kappa := d.Kappa()
	// Tokens that the batch holds on average while this answer is made.
	before := kappa * d.Curve.Interval(d.DecodeRequests, d.DecodeTokens)
	after := kappa * d.Curve.Interval(d.DecodeRequests+1, d.DecodeTokens+r.Input)
	c.Parts = Parts{
		Queue: p.Backlog(now), Prefill: own, Stall: own * float64(p.DecodeRequests),
		Decode: float64(output) * after, Penalty: p.Penalty,
	}
	if d.DecodeRequests > 0 {
		c.Parts.Slow = math.Max(0, after-before) * float64(d.DecodeRemaining)
	}
	if p.ID != d.ID {
		c.Parts.Handoff, c.Parts.Overlap = s.Handoff, d.Backlog(now)
		c.Parts.Penalty += d.Penalty
	}
	c.Cost = c.Parts.Total()
	c.Interval = after
	c.Price = max(0, now-r.Arrived) + c.Parts.Queue + own*max(1, p.Risk) + c.Parts.Handoff + c.Parts.Overlap + after
	c.Dropped = judge(s.Params, r, p, d, c, now)
	return c
}

// full reports whether KV that P holds for handoffs leaves no room for another prompt: such
// blocks cannot be evicted before they are read or their lease ends.
func full(p *model.EngineView, r model.Request) bool {
	return p.Curve.KVCapacity > 0 && p.Held > 0 && p.Held+p.DecodeTokens+r.Input > p.Curve.KVCapacity
}

// judge names what is wrong with a priced pair: what it cannot hold before what would be late.
func judge(par model.Params, r model.Request, p, d *model.EngineView, c Candidate, now float64) model.Reason {
	if why := holds(r, d, c, now); why != "" {
		return why
	}
	if c.Price > par.Budget() {
		alone := p.Curve.Prefill(r.Input) * max(1, p.Risk)
		if alone > par.Budget() {
			return model.ReasonPrompt
		}
		return model.ReasonQueue
	}
	// A request that misses even on an idle engine is not the batch's fault.
	idle := d.Kappa() * d.Curve.Interval(1, r.Input)
	if c.Interval > par.TPOT && idle <= par.TPOT {
		return model.ReasonTPOT
	}
	return ""
}

// holds names what D lacks to hold the request at the moment its prefill is expected to
// end. Residents that will have left by then free their seats.
func holds(r model.Request, d *model.EngineView, c Candidate, now float64) model.Reason {
	seats := d.Curve.MaxRequests
	if d.DecodeSeats > 0 {
		seats = min(seats, d.DecodeSeats)
	}
	requests, tokens := d.DecodeRequests, d.DecodeTokens+d.Held
	own := r.Input + max(1, r.Expected)
	if requests+1 > seats || tokens+own > d.Curve.TokenLimit() {
		ready := now + c.Parts.Queue + c.Parts.Prefill + c.Parts.Handoff + c.Parts.Overlap
		requests, tokens = d.Occupied(now, ready, c.Interval)
		tokens += d.Held
	}
	switch {
	case requests+1 > seats:
		return model.ReasonSlotWait
	case tokens+own > d.Curve.TokenLimit() && requests > 0:
		return model.ReasonKVCapacity
	}
	return ""
}

func best(cs []Candidate, rid string, ok func(Candidate) bool) int {
	found := -1
	for i, c := range cs {
		if !ok(c) {
			continue
		}
		if found < 0 || better(c, cs[found], rid) {
			found = i
		}
	}
	return found
}

// better orders by cost; costs within a microsecond are ties, broken by a hash of the
// request and the pair so that an idle fleet is used evenly.
func better(a, b Candidate, rid string) bool {
	ca, cb := math.Round(a.Cost*1e6), math.Round(b.Cost*1e6)
	if ca != cb {
		return ca < cb
	}
	ha, hb := tie(rid, a), tie(rid, b)
	if ha != hb {
		return ha < hb
	}
	if a.Prefill != b.Prefill {
		return a.Prefill < b.Prefill
	}
	return a.Decode < b.Decode
}

func tie(rid string, c Candidate) uint64 {
	h := fnv.New64a()
	for _, s := range []string{rid, c.Prefill, c.Decode} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	// FNV's low bits differ little between short keys that end alike; mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

func (d Decision) choose(i int) Decision {
	c := d.Candidates[i]
	d.Placed, d.Prefill, d.Decode = true, c.Prefill, c.Decode
	d.Parts, d.Price, d.Own = c.Parts, c.Price, c.Parts.Prefill
	return d
}

package sched

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// refused names the cause that the closest pair failed for: a queue before a slow batch, that
// before a full cache or no seat, and the prompt itself last, which then fails on every engine
// so that waiting does not help.
func (w *weighing) refused() Decision {
	c := causes{budget: w.s.Params.Budget()}
	soonest, slow, tight := w.ends()
	for i := range w.ps {
		p := &w.ps[i]
		if p.Dropped != "" {
			if p.Dropped == model.ReasonKVCapacity {
				c.kv.take(p, w.any(p), p.Cost)
			}
			continue
		}
		// Of the decode engines with room, the soonest tells whether any is soon enough.
		one := !w.shared && len(w.s.Barred) == 0
		if one && soonest != nil {
			c.meet(w, p, soonest)
			if slow != nil && slow != soonest {
				c.meet(w, p, slow)
			}
		}
		if one && !tight {
			continue
		}
		for j := range w.ds {
			if d := &w.ds[j]; open(d, true) && (!one || d.tight) && (!w.same || p.index == d.index) {
				c.meet(w, p, d)
			}
		}
	}
	w.mark(c.budget)
	why, of := c.first()
	d := Decision{Elapsed: w.elapsed, Prefills: w.ps, Decodes: w.ds}
	if of.d != nil {
		d = w.decision(of.p, of.d)
	}
	d.Refused, d.RetryAfter = why, 1
	switch why {
	case model.ReasonQueue:
		d.RetryAfter = wholeSeconds(d.Price - w.elapsed - c.budget)
	case model.ReasonPrompt:
		d.RetryAfter = 0
	}
	return d
}

// causes are the closest pairs that failed, by what they failed for.
type causes struct {
	budget                        float64
	queue, tpot, kv, slot, prompt pair
}

func (c *causes) meet(w *weighing, p, d *Side) {
	price, why := w.price(p, d), w.room(p, d)
	switch {
	case why == model.ReasonBarred:
	case why == model.ReasonTPOT:
		c.tpot.take(p, d, p.Cost+d.Cost)
	case why == model.ReasonSlotWait:
		c.slot.take(p, d, p.Cost+d.Cost)
	case why != "":
		c.kv.take(p, d, p.Cost+d.Cost)
	case price > c.budget && p.alone <= c.budget:
		c.queue.take(p, d, price)
	case price > c.budget:
		c.prompt.take(p, d, p.Cost)
	case d.Dropped == model.ReasonTPOT:
		c.tpot.take(p, d, p.Cost+d.Cost)
	}
}

func (c *causes) first() (model.Reason, pair) {
	switch {
	case c.queue.p != nil:
		return model.ReasonQueue, c.queue
	case c.tpot.p != nil:
		return model.ReasonTPOT, c.tpot
	case c.kv.p != nil:
		return model.ReasonKVCapacity, c.kv
	case c.slot.p != nil:
		return model.ReasonSlotWait, c.slot
	case c.prompt.p != nil:
		return model.ReasonPrompt, c.prompt
	}
	return model.ReasonNoEngine, pair{}
}

// pair is the least of several.
type pair struct {
	p, d *Side
	by   float64
}

func (x *pair) take(p, d *Side, by float64) {
	if x.p == nil || by < x.by {
		*x = pair{p, d, by}
	}
}

// any is some decode engine beside p, nil without one.
func (w *weighing) any(p *Side) *Side {
	for j := range w.ds {
		if d := &w.ds[j]; open(d, true) && (!w.same || d.index == p.index) {
			return d
		}
	}
	return nil
}

// ends finds, of the decode engines that have room whenever the request comes, the one that is
// soonest, and the soonest of those whose batch is too slow; tight tells whether there are others.
func (w *weighing) ends() (soonest, slow *Side, tight bool) {
	for j := range w.ds {
		d := &w.ds[j]
		if !open(d, true) {
			continue
		}
		if d.tight {
			tight = true
			continue
		}
		if soonest == nil || d.Price < soonest.Price {
			soonest = d
		}
		if d.Dropped == model.ReasonTPOT && (slow == nil || d.Price < slow.Price) {
			slow = d
		}
	}
	return soonest, slow, tight
}

// mark notes on each side why no pair with it would do.
func (w *weighing) mark(budget float64) {
	p, d := math.Inf(1), math.Inf(1)
	for i := range w.ps {
		if w.ps[i].Dropped == "" {
			p = min(p, w.ps[i].Price)
		}
	}
	for j := range w.ds {
		if open(&w.ds[j], true) {
			d = min(d, w.ds[j].Price)
		}
	}
	for i := range w.ps {
		switch c := &w.ps[i]; {
		case c.Dropped != "" || w.elapsed+c.Price+d <= budget:
		case c.alone > budget:
			c.Dropped = model.ReasonPrompt
		default:
			c.Dropped = model.ReasonQueue
		}
	}
	for j := range w.ds {
		c := &w.ds[j]
		if c.Dropped == "" && c.tight {
			c.Dropped = model.ReasonSlotWait
			if e := &w.s.Engines[c.index]; e.DecodeRequests+takes(e, w.r) <= seats(e) {
				c.Dropped = model.ReasonKVCapacity
			}
		} else if c.Dropped == "" && w.elapsed+p+c.Price > budget {
			c.Dropped = model.ReasonQueue
		}
	}
}

// wholeSeconds rounds up to at least one second and at most an hour.
func wholeSeconds(s float64) int { return int(math.Min(3600, math.Max(1, math.Ceil(s)))) }

package sched

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

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

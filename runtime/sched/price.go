package sched

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// room names what keeps the request off a pair: it is barred, or what D lacks to hold the request at the
// moment its prefill on P is expected to end. Residents that will have left by then free their seats.
func (w *weighing) room(p, d *Side) model.Reason {
	if w.barred(p, d) {
		return model.ReasonBarred
	}
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

// barred reports whether the KV of P does not arrive on D.
func (w *weighing) barred(p, d *Side) bool {
	return len(w.s.Barred) > 0 && slices.Contains(w.s.Barred, model.Edge{Prefill: p.index, Decode: d.index})
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

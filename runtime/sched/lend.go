package sched

import "math"

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

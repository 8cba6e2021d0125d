package sched

import "math"

// What a prefill engine that decodes may have to do beside it. Its prefills come first, so that those
// that it decodes stand still meanwhile: for half of the time, their tokens come at the promised pace.
const (
	hostPace  = 0.5  // part of the promised pace that its batch may take
	hostQueue = 0.25 // part of the promised first token that a prompt may wait on it
)

// host picks a prefill engine for both phases of a request that no decode engine can take, and reports
// whether there is one. The engines that could stand among the decode sides.
func (w *weighing) host() bool {
	par := &w.s.Params
	if par.Lend == 0 || par.FixedRoles || w.same || w.stands {
		return false
	}
	n, best := len(w.ds), int64(math.MaxInt64)
	for i := range w.ps[:w.own] {
		p := &w.ps[i]
		e := &w.s.Engines[p.index]
		if p.Dropped != "" || e.Pinned || e.Later == nil || p.Parts.Queue > hostQueue*par.TTFT {
			continue
		}
		d := side(&w.ds, e.ID, p.index)
		w.decode(d, e)
		if d.Dropped != "" || d.Interval > hostPace*par.TPOT || !w.fits(p, d, false) || w.outgrows(p, d) {
			w.ds = w.ds[:len(w.ds)-1]
			continue
		}
		cost := micro(p.Cost + d.Cost - d.apart)
		if len(w.ds) == n+1 || cost < best || cost == best && w.sooner(d, &w.ds[w.j]) {
			w.i, w.j, w.late, best = i, len(w.ds)-1, false, cost
		}
	}
	w.x.decodes = w.ds
	return len(w.ds) > n
}

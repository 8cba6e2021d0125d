package sched

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

const (
	// thinned is the part of the promised pace that a batch may be projected to take when it is
	// judged by who will still be there: it grows by the tokens that are made, and by requests
	// whose prefill ends later.
	thinned = 0.98
	// mostThinned is how many engines are looked at; reading all residents of more would take
	// longer than a decision may.
	mostThinned = 4
)

// thins lets decode engines that are too slow now take the request where enough of their
// residents will have left when its prefill ends, and reports whether there are such. Where that
// is so only after the longest queue for prefill that the promise allows, the request has to
// take that one. Of many engines those with the fastest batches are looked at. It is worth most
// where answers are short: most of those that an engine is to decode are still prefilling when
// those that it decodes now have left.
func (w *weighing) thins() bool {
	if w.same {
		return false
	}
	any, budget := false, w.s.Params.Budget()
	var few [mostThinned]int
	for _, j := range w.fastest(&few) {
		d := &w.ds[j]
		e := &w.s.Engines[d.index]
		if e.Later == nil {
			continue
		}
		soonest, latest := math.Inf(1), 0.0
		for i := range w.ps {
			if p := &w.ps[i]; p.Dropped == "" && w.price(p, d) <= budget && !w.barred(p, d) {
				ends := p.ends()
				soonest, latest = min(soonest, ends), max(latest, ends)
			}
		}
		d.pace = max(w.s.Params.TPOT, w.before(e))
		switch {
		case latest == 0:
		case w.thin(e, d, soonest):
			d.Dropped, any = "", true
		case latest > soonest && w.thin(e, d, latest):
			d.Dropped, d.from, any = "", latest, true
		}
	}
	return any
}

// thin reports whether an engine keeps the pace with the request in so many seconds.
func (w *weighing) thin(e *model.EngineView, d *Side, in float64) bool {
	free := w.now + e.Backlog(w.now)
	requests, tokens := e.Later.Occupied(free, max(free, w.now+in+d.Parts.Handoff), d.pace)
	return float64(e.Kappa()*e.Curve.Interval(requests+w.seats, tokens+w.r.Input)) <= thinned*w.s.Params.TPOT
}

// ends is in how many seconds the prefill is expected to end.
func (p *Side) ends() float64 { return p.Parts.Queue + p.Parts.Prefill }

// before is the pace of those that decode on an engine now.
func (w *weighing) before(e *model.EngineView) float64 {
	return float64(e.Kappa() * e.Curve.Interval(e.DecodeRequests-e.ComingRequests, e.DecodeTokens-e.ComingTokens))
}

// fastest are those of the engines that are too slow now which are looked at.
func (w *weighing) fastest(of *[mostThinned]int) []int {
	n := 0
	for j := range w.ds {
		d := &w.ds[j]
		if d.Dropped != model.ReasonTPOT || n == mostThinned && !d.faster(&w.ds[of[n-1]]) {
			continue
		}
		n = min(n+1, mostThinned)
		i := n - 1
		for ; i > 0 && d.faster(&w.ds[of[i-1]]); i-- {
			of[i] = of[i-1]
		}
		of[i] = j
	}
	return of[:n]
}

// faster orders decode sides by the pace of their batches, then by name.
func (d *Side) faster(than *Side) bool {
	return d.Interval < than.Interval || d.Interval == than.Interval && d.Engine < than.Engine
}

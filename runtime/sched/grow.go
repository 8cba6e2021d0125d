package sched

import "github.com/narwhal-fleet/narwhal/runtime/model"

// mostGrown is how many engines a decision reads for how their batches will grow.
const mostGrown = 4

// grown are the parts of an answer after which the batch beside it is looked at: later ones depend
// on who is admitted meanwhile.
var grown = [...]float64{0.125, 0.25, 0.5}

// lasting is pick within the promise for what follows as well. A batch that is at its pace when the
// last of many comes is beyond it soon after, where they came together: all of them grow, nobody
// leaves, and each of them misses by a little. The engine that is picked is read, and dropped if
// its batch outgrows the pace; after mostGrown of those one is taken by the sums alone, since more
// reading would take longer than a decision may.
func (w *weighing) lasting() bool {
	for range mostGrown {
		if !w.pick(false) {
			return false
		}
		if !w.outgrows(&w.ps[w.i], &w.ds[w.j]) {
			return true
		}
		w.ds[w.j].Dropped = model.ReasonTPOT
	}
	return w.pick(false)
}

// outgrows reports whether a batch breaks the promised pace while the request is in it, when those
// who leave have left: at any moment that is looked at, or, where it is too slow now and taken
// because it will be thinner, on average. Without a batch there is none to break it.
func (w *weighing) outgrows(p, d *Side) bool {
	e, par := &w.s.Engines[d.index], &w.s.Params
	if e.Later == nil || e.DecodeRequests == 0 {
		return false
	}
	n, own, kappa := w.seats, w.each, e.Kappa()
	// As if nobody left.
	if most := min((e.DecodeRequests+n)*own/2, e.DecodeRemaining+n*own/2); d.Interval+float64(kappa*e.Curve.Slope*float64(most)) <= par.TPOT {
		return false
	}
	free := w.free(p, d)
	from := w.joins(p, d, free)
	sum := 0.0
	for _, part := range grown {
		made := part * float64(own)
		requests, tokens := e.Later.Occupied(free, from+float64(made*par.TPOT), par.TPOT)
		pace := float64(kappa * e.Curve.Interval(requests+n, tokens+w.r.Input+n*int(made)))
		if pace > par.TPOT && d.Interval <= par.TPOT {
			return true
		}
		sum += pace
	}
	return sum > float64(len(grown))*par.TPOT
}

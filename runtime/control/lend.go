package control

import "math"

// mostLent is the largest share of its time that a decode engine is planned to spend on
// prefills. Their residents' promises limit it, which differ from one moment to the next.
const mostLent = 0.2

// lent projects the demand on p prefill and d decode engines, as shares of what they can do,
// when decode engines take as much of the prefill as evens both out. The time that they lend
// is lost to decoding, and more than that: their batches must be smaller to keep the pace.
func (l load) lent(par Params, dem Demand, p, d float64) (prefill, decode float64) {
	at := func(share float64) {
		prefill = dem.Prefill / (p*par.Utilization + share*d)
		decode = dem.Decode / (d * par.Utilization * math.Max(1e-9, l.kept(dem.Context, share, par.TPOT)))
	}
	if at(0); prefill <= decode {
		return prefill, decode
	}
	low, high := 0.0, mostLent
	for range 12 {
		mid := (low + high) / 2
		if at(mid); prefill > decode && (decode <= roomy || l.kept(dem.Context, mid, par.TPOT) >= free) {
			low = mid
		} else {
			high = mid
		}
	}
	at(low)
	return prefill, decode
}

// Where decoding is asked for more than it can do, batches fill up until nobody has time to
// spare: engines lend up to a load of roomy, beyond it only what costs their batches nothing.
// docs/evaluation.md has what that is worth when an engine dies or is slow.
const (
	roomy = 1.0
	free  = 0.97
)

// kept is the part of its token rate that an engine keeps when it spends a share of its time
// on prefills and its residents are to have the promised pace all the same.
func (l load) kept(context, share, tpot float64) float64 {
	rate := func(share float64) (sum float64) {
		for i := range l.curves {
			e := &l.curves[i]
			if g, j := e.Curve.Batch(context, tpot*(1-share)/e.Kappa()); g > 0 {
				sum += float64(g) / j * (1 - share)
			}
		}
		return sum
	}
	full := rate(0)
	if full <= 0 {
		return 0
	}
	return rate(share) / full
}

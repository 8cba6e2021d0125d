package control

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Score is what a split is projected to do. Ratios are of the promise: above 1 is a miss.
type Score struct {
	Prefill   int   `json:"prefill"`
	Decode    int   `json:"decode"`
	TTFT      Ratio `json:"ttft_ratio"`
	TPOT      Ratio `json:"tpot_ratio"`
	Objective Ratio `json:"objective"`
	Loss      Ratio `json:"loss,omitempty"` // share of the requests, where it is projected
}

// load is the work that is on the fleet now.
type load struct {
	p, d         int     // live engines of each role
	hasPrefill   bool    // somebody holds the role, live or not
	backlog      float64 // prefill seconds not done yet
	requests, kv float64 // decode residents
	interval     func(r, k float64) float64
}

func measure(engines []model.EngineView, now float64) load {
	var l load
	curves := make([]*model.EngineView, 0, len(engines))
	for i := range engines {
		e := &engines[i]
		l.hasPrefill = l.hasPrefill || e.Role == model.Prefill
		if !e.Live {
			continue
		}
		if e.Role == model.Prefill {
			l.p++
		} else {
			l.d++
		}
		l.backlog += e.Backlog(now)
		l.requests += float64(e.DecodeRequests)
		l.kv += float64(e.DecodeTokens)
		if e.Curve.Measured() {
			curves = append(curves, e)
		}
	}
	l.interval = func(r, k float64) float64 {
		sum := 0.0
		for _, e := range curves {
			sum += e.Kappa() * e.Curve.Interval(int(math.Round(r)), int(math.Round(k)))
		}
		return sum / math.Max(1, float64(len(curves)))
	}
	return l
}

// score projects a split of p prefill and d decode engines: the demand spread over them,
// the backlog against the first-token promise, and the resident batch against the token
// promise, each as a share of what is free of the engine's own floor.
func score(par Params, l load, dem Demand, p, d int) Score {
	s := Score{Prefill: p, Decode: d, TTFT: Ratio(math.Inf(1)), TPOT: Ratio(math.Inf(1)), Objective: Ratio(math.Inf(1))}
	if p < 1 || d < 1 {
		return s
	}
	fp, fd := float64(p), float64(d)
	s.TTFT = Ratio(math.Max(dem.Prefill/(fp*par.Utilization), l.backlog/(fp*par.TTFT)))
	resident := 0.0
	if l.requests > 0 {
		f := l.interval(0, 0)
		j := l.interval(l.requests/fd, l.kv/fd)
		if f >= par.TPOT {
			resident = j / par.TPOT
		} else {
			resident = math.Max(0, j-f) / (par.TPOT - f)
		}
	}
	s.TPOT = Ratio(math.Max(dem.Decode/(fd*par.Utilization), resident))
	s.Objective = max(s.TTFT, s.TPOT)
	return s
}

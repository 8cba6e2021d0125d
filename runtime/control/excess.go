package control

import "math"

const (
	// doubted is how many requests that were lost as projected each comparison begins with.
	doubted = 500
	// excessMemory is how many windows a comparison remembers.
	excessMemory = trialMemory
)

// excess is what one split lost beyond what was projected for it.
type excess struct {
	Prefill int        `json:"prefill"` // engines of the split
	Offered float64    `json:"offered"` // requests that were compared, less what is forgotten
	Beyond  [2]float64 `json:"beyond"`  // of them, for want of prefill, of decoding; at least 0
}

// excesses are those of the splits that the engines have had. Arrivals come less evenly than a block
// of them is projected, engines are not as profiles say: a split that loses more than projected
// seems better than it is until what it loses is counted.
type excesses []excess

// beyond is the share of requests that a split is taken to lose beyond what is projected for it. What
// another one lost for want of prefill is lost with fewer prefill engines too, and likewise for decoding.
func (x excesses) beyond(prefill int) Ratio {
	most := [2]float64{}
	for i := range x {
		e := &x[i]
		if e.Prefill >= prefill {
			most[0] = math.Max(most[0], e.Beyond[0]/(e.Offered+doubted))
		}
		if e.Prefill <= prefill {
			most[1] = math.Max(most[1], e.Beyond[1]/(e.Offered+doubted))
		}
	}
	return Ratio(most[0] + most[1])
}

// compare notes what was lost of the newest block beside what was projected, once the split of these
// engines has lasted for a span. Older slices stay as they are.
func (x excesses) compare(s *State, f *forecast, now float64) excesses {
	b := &f.blocks[0]
	n := b.requests * b.span
	if n < float64(s.Params.MinArrivals) || now-max(s.Started, s.lastMove, s.liveSince) < s.span() {
		return x
	}
	keep := math.Max(0, 1-s.Params.Step/(excessMemory*s.Params.Window))
	next := make(excesses, 0, len(x)+1)
	at := -1
	for i, e := range x {
		if e.Prefill == f.p {
			at = i
		}
		next = append(next, excess{e.Prefill, e.Offered * keep, [2]float64{e.Beyond[0] * keep, e.Beyond[1] * keep}})
	}
	if at < 0 {
		at = len(next)
		next = append(next, excess{Prefill: f.p})
	}
	missed := s.missed(now, s.span())
	all := missed[0] + missed[1]
	part := s.Params.Step / b.span // blocks of two evaluations overlap
	more := part * (all - float64(n*f.lost(b, f.now[0], f.now[1])))
	e := &next[at]
	e.Offered += float64(part * n)
	for k := range e.Beyond {
		share := 0.5
		if all > 0 {
			share = missed[k] / all
		}
		e.Beyond[k] = math.Max(0, e.Beyond[k]+float64(more*share))
	}
	return next
}

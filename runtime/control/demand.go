package control

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Demand is the measured work of a horizon, in engines of each phase at full use.
type Demand struct {
	Span     float64 `json:"span_s"`
	Arrivals int     `json:"arrivals"`
	Prefill  float64 `json:"prefill_engines"`
	Decode   float64 `json:"decode_engines"`
	Complete bool    `json:"complete"`
	Context  float64 `json:"context_tokens"` // of a resident, in the middle of its answer
}

func (s State) width() float64 { return min(1, s.Params.Step, max(s.Params.EvidenceSpan, 1e-3)) }

func (s State) arrive(a Arrival) State {
	s = s.roll(a.At)
	n := float64(max(1, a.Input))
	held := min(max(0, float64(a.Cached)), n)
	m := moments{N: 1, In: n - held, InSq: n*n - held*held} // as profile.Curve.Warm has it
	if a.Wanted > 0 {
		length := s.outputs.expect(a.Input, a.Wanted)
		m.Out, m.OutIn, m.OutQ = length, length*n, length*length
	} else {
		m.Free, m.FreeIn = 1, n
	}
	k := band(a.Input)
	s.open.All, s.open.Band[k] = s.open.All.plus(m), s.open.Band[k].plus(m)
	return s
}

// freed prices the answers of a bucket that nothing limits.
func (s *State) freed(b *bucket) (m moments) {
	for i := range b.Band {
		if x := b.Band[i]; x.Free > 0 {
			m = m.plus(moments{Free: x.Free, FreeIn: x.FreeIn}.told(s.outputs.expect(1<<(i+6), 0)))
		}
	}
	return m
}

// roll closes the open bucket when now lies beyond it and forgets what left the window.
func (s State) roll(now float64) State {
	w := s.width()
	if now < s.open.From+w {
		return s
	}
	closed := make([]*bucket, 0, len(s.closed)+1)
	for _, b := range s.closed {
		if b.From+w > now-s.Params.Window {
			closed = append(closed, b)
		} else if s.Params.Lends {
			s.past = remembered(s.past, b, now-memory*s.Params.Window, s.span())
		}
	}
	if s.open.All.N > 0 || s.open.Missed != [2]float64{} {
		last := s.open
		closed = append(closed, &last)
	}
	s.closed = closed
	s.open = bucket{From: s.open.From + w*math.Floor((now-s.open.From)/w)}
	return s
}

// demand prices the arrivals of the last horizon seconds.
func (s State) demand(engines []model.EngineView, now, horizon float64) Demand {
	span := min(horizon, max(s.Params.Step, now-s.Started))
	sum := s.open.All
	free := s.freed(&s.open)
	w := s.width()
	for _, b := range s.closed {
		if b.From+w > now-span {
			sum.add(&b.All)
			if b.All.Free > 0 {
				free = free.plus(s.freed(b))
			}
		}
	}
	d := Demand{Span: span, Arrivals: int(sum.N), Complete: sum.Free == 0 || s.outputs.Free >= s.Params.MinArrivals}
	sum = sum.plus(free)
	if sum.N == 0 {
		return d
	}
	d.Context = sum.context()
	profiled := 0.0
	perSecond := 0.0 // tokens/s of one decode engine at the mean context
	context := d.Context
	for i := range engines {
		c := &engines[i].Curve
		if !engines[i].Live || !c.Measured() {
			continue
		}
		profiled++
		d.Prefill += engines[i].PrefillKappa() * (c.A*sum.InSq + c.B*sum.In + c.C*sum.N) / span
		if g, j := c.Batch(context, s.Params.TPOT/engines[i].Kappa()); g > 0 {
			perSecond += float64(g) / (j * engines[i].Kappa())
		}
	}
	if profiled == 0 {
		d.Complete = false
		return d
	}
	d.Prefill /= profiled
	if perSecond == 0 {
		d.Decode = math.Inf(1)
		return d
	}
	d.Decode = sum.Out / span / (perSecond / profiled)
	return d
}

// memory is how many windows the forecast remembers.
const memory = 5

// remembered adds what left the window to blocks of a span, without those that began before a
// moment. Older slices and their buckets stay as they are.
func remembered(past []*bucket, b *bucket, since, span float64) []*bucket {
	n := len(past)
	if n > 0 && b.From < past[n-1].From+span {
		last := *past[n-1]
		last.All = last.All.plus(b.All)
		for i := range last.Band {
			last.Band[i] = last.Band[i].plus(b.Band[i])
		}
		return append(slices.Clone(past[:n-1]), &last)
	}
	for n > 0 && past[0].From < since {
		past, n = past[1:], n-1
	}
	return append(slices.Clip(past), b)
}

// span is how long a demand must last to be believed.
func (s State) span() float64 {
	return s.Params.Step * float64(max(1, s.Params.Confirmations, s.Params.Sustained))
}

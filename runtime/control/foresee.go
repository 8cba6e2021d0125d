package control

import (
	"math"
	"math/bits"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// forecast is the demand of several windows in blocks of time and what each split has to meet it.
// Every block is judged by itself, so that a split which serves all of what comes and goes is
// worth more than one that is right for the moment. docs/evaluation.md has what that is worth
// for square waves.
type forecast struct {
	planned float64                // share of an engine that is planned for
	blocks  []block                // the newest first
	last    block                  // the last interval
	older   float64                // seconds of all but the newest
	early   bool                   // it is made between two evaluations that are due
	kept    [lentSteps + 1]float64 // of the token rate, by the share of time that is lent
	idle    float64                // the promised pace's part that an empty batch takes
	p, d    int
	excess  excesses    // of splits that were seen
	of      kin         // the engines that were measured
	tpot    float64     // the promised pace
	context float64     // of a resident, in the middle of its answer
	full    float64     // the mean engine's token rate at it
	now     [2]capacity // of the engines of each role, prefill first
	leaver  [2]string   // the engine that would leave each role first; "" = the one with least to lose
	next    [2]capacity // of the engine that would leave each role first
}

// capacity is what engines can do in each phase, in engines of the fleet's mean speed.
type capacity struct{ prefill, decode float64 }

// block is what arrived in a span: by band of prompt lengths, requests a second and the mean
// engines that each phase asks for.
type block struct {
	weight, span    float64
	arrivals        float64 // of the last interval only
	n, pre, dec     [bands]float64
	requests        float64
	prefill, decode float64
}

// bands are lengths of prompts, each twice as long as the one before.
const bands = 10

// band is the number of a prompt's band.
func band(input int) int { return min(max(0, bits.Len(uint(max(0, input)))-7), bands-1) }

// Weights of the newest block; the older ones share the rest.
const (
	newest   = 0.3  // a split for all that comes and goes
	followed = 0.75 // one for what comes now
)

// foresee reads what arrived. It is not ok without an engine that was measured.
func (s State) foresee(snap model.Snapshot) (f forecast, ok bool) {
	of := mean(snap.Engines)
	if of.n == 0 {
		return f, false
	}
	f.planned = s.Params.Utilization
	sums, spans := s.spans(snap.At)
	s.tell(sums)
	var total [bands]moments
	var all moments
	older := 0.0
	for k := range sums {
		for i := range sums[k] {
			total[i].add(&sums[k][i])
		}
		if k > 0 {
			older += spans[k]
		}
	}
	var rates [bands]float64
	for i, m := range total {
		all = all.plus(m)
		if m.N > 0 {
			rates[i] = of.rate(m.context(), 0, s.Params.TPOT)
		}
	}
	full := math.Max(1e-9, of.rate(all.context(), 0, s.Params.TPOT))
	f.of, f.tpot, f.context, f.full = of, s.Params.TPOT, all.context(), full
	f.measure(s.Params, snap)
	for i := range f.kept {
		f.kept[i] = of.rate(all.context(), mostLent*float64(i)/lentSteps, s.Params.TPOT) / full
	}
	f.older, f.idle = older, math.Min(1, of.curve.Interval(0, 0)/s.Params.TPOT)
	for k := range sums {
		b := priced(&sums[k], spans[k], &of, &rates)
		b.span = spans[k]
		f.blocks = append(f.blocks, b)
	}
	f.last = s.step(snap.At, &of, &rates)
	f.weigh(newest)
	return f, true
}

// step is the last interval between two evaluations as a block.
func (s State) step(now float64, of *kin, rates *[bands]float64) block {
	sums := make([][bands]moments, 1)
	n := 0.0
	add := func(b *bucket) {
		for i := range b.Band {
			sums[0][i].add(&b.Band[i])
		}
		n += b.All.N
	}
	add(&s.open)
	for i := len(s.closed) - 1; i >= 0 && s.closed[i].From >= now-s.Params.Step*(1+1e-9); i-- {
		add(s.closed[i])
	}
	s.tell(sums)
	b := priced(&sums[0], s.Params.Step, of, rates)
	b.span, b.arrivals = s.Params.Step, n
	return b
}

// weigh gives the newest block a weight.
func (f *forecast) weigh(newest float64) {
	for k := range f.blocks {
		b := &f.blocks[k]
		switch {
		case f.older == 0:
			b.weight = 1
		case k == 0:
			b.weight = newest
		default:
			b.weight = (1 - newest) * b.span / f.older
		}
	}
}

// tell gives lengths to the answers that nothing limits.
func (s *State) tell(sums [][bands]moments) {
	var lengths [bands]float64
	for k := range sums {
		for i := range sums[k] {
			if m := &sums[k][i]; m.Free > 0 {
				if lengths[i] == 0 {
					lengths[i] = s.outputs.expect(1<<(i+6), 0)
				}
				*m = m.told(lengths[i])
			}
		}
	}
}

// spans sums what is remembered in blocks, the newest first.
func (s State) spans(now float64) (sums [][bands]moments, spans []float64) {
	span, w := s.span(), s.width()
	n := 2 + int(memory*s.Params.Window/span)
	sums, spans = make([][bands]moments, 0, n), make([]float64, 0, n)
	add := func(b *bucket) {
		k := max(0, int((now-b.From-w)/span*(1-1e-9)))
		for len(sums) <= k {
			sums, spans = append(sums, [bands]moments{}), append(spans, span)
		}
		for i := range b.Band {
			if m := &b.Band[i]; m.N > 0 {
				sums[k][i].add(m)
			}
		}
	}
	add(&s.open)
	for i := len(s.closed) - 1; i >= 0; i-- {
		add(s.closed[i])
	}
	for _, b := range s.past {
		add(b)
	}
	last := len(spans) - 1
	if since := now - s.Started - float64(last)*span; since < span {
		spans[last] = math.Max(w, since)
	}
	return sums, spans
}

// priced is a block of arrivals in engines of the fleet's mean speed.
func priced(sums *[bands]moments, span float64, of *kin, rates *[bands]float64) (b block) {
	for i := range sums {
		m := &sums[i]
		if m.N == 0 {
			continue
		}
		b.n[i], b.pre[i] = m.N/span, (of.curve.A*m.InSq+of.curve.B*m.In+of.curve.C*m.N)/span
		if rates[i] > 0 {
			b.dec[i] = m.Out / span / rates[i]
		}
		b.requests, b.prefill, b.decode = b.requests+b.n[i], b.prefill+b.pre[i], b.decode+b.dec[i]
	}
	return b
}

// measure notes what the engines of each role can do, and those that would leave it first.
func (f *forecast) measure(par Params, snap model.Snapshot) {
	first := [2]string{}
	for i, role := range []model.Role{model.Prefill, model.Decode} {
		first[i], _ = donor(par, snap, role, true)
		f.next[i] = capacity{1, 1}
	}
	for i := range snap.Engines {
		e := &snap.Engines[i]
		if !e.Live {
			continue
		}
		role := 0
		if e.Role == model.Prefill {
			f.p++
		} else {
			f.d++
			role = 1
		}
		c := f.can(e)
		f.now[role].prefill += c.prefill
		f.now[role].decode += c.decode
		if e.ID == first[role] {
			f.next[role] = c
		}
	}
}

// can is what an engine does. Its batch keeps the promised pace, so that a slow engine makes fewer
// tokens than its correction alone says.
func (f *forecast) can(e *model.EngineView) capacity {
	c := capacity{f.of.prefill / e.PrefillKappa(), 1}
	if slower := e.Kappa() / f.of.token; math.Abs(slower-1) > 1e-3 {
		c.decode = f.of.rate(f.context, 0, f.tpot/slower) / slower / f.full
	}
	return c
}

// kin is the mean of the live engines that were measured: its curve has their corrections in it.
type kin struct {
	n              float64
	curve          profile.Curve
	prefill, token float64 // mean corrections
}

func mean(engines []model.EngineView) (k kin) {
	requests, tokens, room := 0.0, 0.0, 0.0
	m := &k.curve
	for i := range engines {
		e := &engines[i]
		c := &e.Curve
		if !e.Live || !c.Measured() {
			continue
		}
		kp, kd := e.PrefillKappa(), e.Kappa()
		k.n, k.prefill, k.token = k.n+1, k.prefill+kp, k.token+kd
		m.A, m.B, m.C = m.A+kp*c.A, m.B+kp*c.B, m.C+kp*c.C
		m.Slope, m.RequestSlope, m.Intercept = m.Slope+kd*c.Slope, m.RequestSlope+kd*c.RequestSlope, m.Intercept+kd*c.Intercept
		requests, tokens, room = requests+float64(c.MaxRequests), tokens+float64(c.MaxKVTokens), room+float64(c.TokenLimit())
	}
	if k.n == 0 {
		return k
	}
	k.prefill, k.token = k.prefill/k.n, k.token/k.n
	m.A, m.B, m.C = m.A/k.n, m.B/k.n, m.C/k.n
	m.Slope, m.RequestSlope, m.Intercept = m.Slope/k.n, m.RequestSlope/k.n, m.Intercept/k.n
	m.MaxRequests, m.MaxKVTokens, m.KVCapacity = int(requests/k.n), int(tokens/k.n), int(room/k.n)
	return k
}

// rate is how many tokens a second the mean engine makes for residents of a context length when
// it spends a share of its time on prefills and all are to have the promised pace.
func (k *kin) rate(context, share, tpot float64) float64 {
	if g, j := k.curve.Batch(context, tpot*(1-share)); g > 0 {
		return float64(g) / j * (1 - share)
	}
	return 0
}

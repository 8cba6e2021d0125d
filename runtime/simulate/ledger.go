package simulate

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// ledger is what a router knows of an engine: what it gave it and what came back. The
// rules are those of the router's own inventory.
type ledger struct {
	v *model.EngineView // in the world's snapshot

	prefillFree   float64
	behind        float64 // predicted work of the queue but its first
	pending       []*job  // placed for decode here, prefilling elsewhere
	pendIn        int     // Σ input of pending
	pendOut       int     // Σ output of pending
	joinIn        int     // Σ input of those that wait to join
	joinOut       int     // Σ output of those
	leaves        int     // Σ last steps of the batch
	waiting, live int     // what it counts as queued for prefill, and as decoding

	ratios  [64]float64 // observed over predicted prefill, a ring
	sorted  []float64   // the same in order
	ratioN  int
	touched bool // prefill or residency changed in the open interval
	before  int  // tokens at the start of the interval
}

// look brings the engine's view up to a moment.
func (e *engine) look(now float64) {
	v := e.v
	r, s := len(e.batch), e.stepsBy(now)
	v.PrefillFree = max(e.prefillFree, now+e.behind)
	v.PrefillRequests = e.waiting
	v.DecodeRequests = len(e.pending) + e.live
	v.DecodeTokens = e.pendIn + e.joinIn + e.tokens + (s-e.steps)*r
	v.DecodeRemaining = e.pendOut + e.joinOut + e.leaves - s*r
}

// Occupied implements model.Later.
func (e *engine) Occupied(now, at, interval float64) (requests, tokens int) {
	add := func(r model.Resident) {
		n, k := r.Takes(now, at, interval)
		requests, tokens = requests+n, tokens+k
	}
	s := e.stepsBy(now)
	for _, j := range e.batch {
		left := j.leaves - s
		add(model.Resident{Tokens: j.input + j.output - left, Remaining: left})
	}
	for _, j := range e.join.all() {
		add(model.Resident{Tokens: j.input, Remaining: j.output})
	}
	for _, j := range e.pending {
		add(model.Resident{Ready: j.placed + j.queue + j.own, Tokens: j.input, Remaining: j.output})
	}
	return requests, tokens
}

// reserve notes a placement on both of its engines.
func reserve(j *job, now float64) {
	p, d := j.p, j.d
	if p.waiting > 0 {
		p.behind += j.own
	}
	p.waiting++
	p.prefillFree = max(p.prefillFree, now) + j.own
	p.touched = true
	d.pending = append(d.pending, j)
	d.pendIn += j.input
	d.pendOut += j.output
}

// prefillEnded takes a request off the prefill side and starts its decode side.
func prefillEnded(j *job, now float64) {
	p, d := j.p, j.d
	p.waiting--
	p.touched = true
	left := 0.0
	for i, x := range p.prefills.all() {
		left += x.own
		if i == 0 {
			p.behind = -x.own
		}
	}
	if p.waiting == 0 {
		p.behind = 0
	} else {
		p.behind = max(0, p.behind+left)
	}
	p.prefillFree = now + left
	if j.queue+j.own > 0 {
		p.observe((now - j.placed) / (j.queue + j.own))
	}
	if i := slices.Index(d.pending, j); i >= 0 { // one that is missing is found by check
		last := len(d.pending) - 1
		d.pending[i], d.pending[last] = d.pending[last], nil
		d.pending = d.pending[:last]
	}
	d.pendIn -= j.input
	d.pendOut -= j.output
	d.live++
	d.touched = true
}

// observe keeps the 80th percentile of the last 64 ratios as the engine's risk.
func (l *ledger) observe(ratio float64) {
	at := l.ratioN % len(l.ratios)
	if l.ratioN >= len(l.ratios) {
		i, _ := slices.BinarySearch(l.sorted, l.ratios[at])
		l.sorted = slices.Delete(l.sorted, i, i+1)
	}
	l.ratios[at] = ratio
	i, _ := slices.BinarySearch(l.sorted, ratio)
	l.sorted = slices.Insert(l.sorted, i, ratio)
	l.ratioN++
	if l.ratioN >= 8 {
		l.v.Risk = min(2, max(1, profile.Quantile(l.sorted, 0.8)))
	}
}

// roll closes a monitoring interval of dt seconds.
func (e *engine) roll(now, dt float64, c Correction) {
	r, s := len(e.batch), e.stepsBy(now)
	total := e.made + (s-e.steps)*r
	made := total - e.before
	e.before = total
	disturbed := e.touched || e.waiting > 0
	e.touched = false
	if e.live == 0 || made <= 0 {
		return
	}
	e.v.Gap = dt * float64(e.live) / float64(made)
	if disturbed || made < c.MinSamples || c.Alpha <= 0 {
		return
	}
	kv := e.joinIn + e.tokens + (s-e.steps)*r
	if predicted := e.v.Curve.Interval(e.live, kv); predicted > 0 {
		k := e.v.Correction
		e.v.Correction = k + float64(c.Alpha*(min(c.Max, max(c.Min, e.v.Gap/predicted))-k))
	}
}

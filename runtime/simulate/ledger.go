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

	tail   profile.Tail // of prefill times
	before int          // tokens at the start of the interval
	plain  bool         // nothing is learned

	whole  float64 // predicted prefill of all that wait for it or are in it
	waitIn int     // Σ input of those

	lastEnd     float64 // of a prefill
	prefillWork profile.Ratio
	decodeWork  profile.Ratio
	settledAt   float64 // until when decoding is accounted for
	settled     int     // tokens made by then
	learn       Correction
	memory      float64 // of the corrections, seconds of work
}

// look brings the engine's view up to a moment.
func (e *engine) look(now float64) {
	v := e.v
	r, s := len(e.batch), e.stepsBy(now)
	v.PrefillFree = max(e.prefillFree, now+e.behind)
	v.PrefillRequests = e.waiting
	v.DecodeRequests = len(e.pending) + e.live
	v.DecodeTokens = e.pendIn + e.joinIn + e.tokens + (s-e.steps)*r
	v.ComingRequests, v.ComingTokens = len(e.pending), e.pendIn
	v.DecodeRemaining = e.pendOut + e.joinOut + e.remaining(s)
}

// Occupied implements model.Later.
func (e *engine) Occupied(now, at, interval float64) (requests, tokens int) {
	add := func(r model.Resident) {
		n, k := r.Takes(now, at, interval)
		requests, tokens = requests+n, tokens+k
	}
	s := e.stepsBy(now)
	for _, j := range e.batch {
		add(model.Resident{Tokens: j.input + j.output - (j.leaves - s), Remaining: e.due(j, s)})
	}
	for _, j := range e.join.all() {
		add(model.Resident{Tokens: j.input, Remaining: j.told})
	}
	for _, j := range e.pending {
		add(model.Resident{Ready: j.due(), Tokens: j.input, Remaining: j.told})
	}
	return requests, tokens
}

// reserve notes a placement on both of its engines.
func reserve(j *job, now float64) {
	p, d := j.p, j.d
	p.settle(now)
	j.work = j.own / p.v.PrefillKappa()
	if p.waiting > 0 {
		p.behind += j.own
	}
	p.waiting++
	p.whole += j.own
	p.waitIn += j.input
	p.prefillFree = max(p.prefillFree, now) + j.own
	d.await(j)
}

// prefillEnded takes a request off the prefill side and starts its decode side.
func prefillEnded(j *job, now float64) {
	p, d := j.p, j.d
	p.settle(now)
	d.settle(now)
	p.waiting--
	if (p.live == 0 || j.placed <= p.lastEnd) && !p.plain { // beside residents only one that followed another at once: else they had some of its time
		p.prefillWork = p.prefillWork.Add(now-max(j.placed, p.lastEnd), p.v.Curve.Warm(j.input, j.hit), p.memory, p.v.PrefillCorrection)
		p.v.PrefillCorrection = p.prefillWork.Value(p.learn.Min, p.learn.Max)
	}
	left := 0.0
	for i, x := range p.prefills.all() {
		left += x.takes()
		if i == 0 {
			p.behind = -left
		}
	}
	if p.waiting == 0 {
		p.behind = 0
	} else {
		p.behind = max(0, p.behind+left)
	}
	p.prefillFree, p.whole = now+left, left
	p.waitIn -= j.input
	p.lastEnd = now
	if j.queue+j.own > 0 {
		p.observe((now - j.placed) / (j.queue + j.own))
	}
	d.forget(j)
	d.live++
}

// takes is the prefill that is expected by what is known now of the engine: the correction may have
// been learned since the request was placed.
func (j *job) takes() float64 { return float64(j.work * j.p.v.PrefillKappa()) }

// due is when the prefill of a request is expected to end.
func (j *job) due() float64 { return model.PrefillEnd(j.placed, j.queue, j.own, j.takes()) }

// await notes a request that will decode here when its prefill has ended, and forget takes it
// off again.
func (l *ledger) await(j *job) {
	l.pending = append(l.pending, j)
	l.pendIn += j.input
	l.pendOut += j.told
}

func (l *ledger) forget(j *job) {
	if i := slices.Index(l.pending, j); i >= 0 { // one that is missing is found by check
		last := len(l.pending) - 1
		l.pending[i], l.pending[last] = l.pending[last], nil
		l.pending = l.pending[:last]
	}
	l.pendIn -= j.input
	l.pendOut -= j.told
}

// observe keeps the 80th percentile of the last 64 ratios as the engine's risk.
func (l *ledger) observe(ratio float64) {
	l.tail.Add(ratio)
	if !l.plain {
		l.v.Risk = l.tail.Risk()
	}
}

// settle accounts for the decoding until now, before what is resident changes: the tokens that
// were made, at the pace of the curve, against the time that they took. The time in which the
// engine prefills says nothing of decoding.
func (e *engine) settle(now float64) {
	dt := now - e.settledAt
	r, s := len(e.batch), e.stepsBy(now)
	total := e.made + (s-e.steps)*r
	made := total - e.settled
	e.settledAt, e.settled = now, total
	if dt <= 0 || e.live == 0 || e.waiting > 0 || e.plain {
		return
	}
	fresh, freshIn := 0, 0
	if s == e.steps {
		for _, j := range e.fresh {
			fresh, freshIn = fresh+1, freshIn+j.input
		}
	}
	work := e.v.Curve.Decoding(made, r-fresh, e.tokens+(s-e.steps)*r-freshIn, e.join.len()+fresh, e.joinIn+freshIn)
	e.decodeWork = e.decodeWork.Add(dt, work, e.memory, e.v.Correction)
}

// roll closes a monitoring interval of dt seconds.
func (e *engine) roll(now, dt float64) {
	e.settle(now)
	made := e.settled - e.before
	e.before = e.settled
	if e.live == 0 || made <= 0 {
		return
	}
	e.v.Gap = dt * float64(e.live) / float64(made)
	if made >= e.learn.MinSamples && !e.plain {
		e.v.Correction = e.decodeWork.Value(e.learn.Min, e.learn.Max)
	}
}

// Slack implements model.Later.
func (e *engine) Slack(now float64, p *model.Params) float64 {
	gap := e.v.Kappa() * e.v.Curve.Interval(e.v.DecodeRequests, e.v.DecodeTokens)
	s := model.NewSlack(now+e.v.Backlog(now), gap, p)
	steps := e.stepsBy(now)
	for _, j := range e.batch {
		if j.first == 0 {
			s.Waiting(j.at, now)
		} else {
			s.Decoding(j.first, j.told, e.due(j, steps))
		}
	}
	for _, j := range e.join.all() {
		s.Waiting(j.at, j.ready)
	}
	for _, j := range e.pending {
		s.Waiting(j.at, j.due())
	}
	return s.Seconds()
}

package simulate

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
)

// place says where a request is.
type place int

const (
	ahead      place = iota // not arrived
	refused                 // turned away
	prefilling              // queued or in prefill
	joining                 // dispatched for decode, not in the batch
	running                 // in the batch
	done
)

// job is one request.
type job struct {
	id            string
	at            float64 // arrival
	input, output int
	class         int
	seq           int // order of arrival
	wanted        int // the client's limit of the answer; 0 = none
	expected      int // tokens that the router expected when it was admitted
	told          int // tokens that the router reckons with
	tries         int // placements that were lost with an engine
	done          int // tokens of the prompt that are prefilled
	head          Head
	begun         bool // its prefill
	cached        int  // tokens of the prompt that the engine was expected to have
	sent          int  // tokens of it that the engine was sent before, as far as is known
	hit           int  // and that it had
	unsplit       bool // its KV need not travel

	place       place
	p, d        *engine
	own, queue  float64 // predicted prefill, and the wait before it, when it was placed
	work        float64 // own without the correction of then
	placed      float64 // when it was placed
	ready       float64 // when it may join
	leaves      int     // the engine's step that makes its last token
	prefilled   float64
	first, last float64 // tokens
}

// engine is one modelled engine: one prefill or one decode step at a time, prefills first.
// Decode steps are not played one by one: between two events of the engine their times are a
// formula.
type engine struct {
	model *Model
	slow  float64
	index int
	ledger

	prefills fifo // the first is in work when busy is prefilling
	join     fifo // in order of dispatch
	batch    []*job
	fresh    []*job // joined at the last boundary
	chunk    int    // most tokens of a prompt at once, beside a decode step; 0 = prompts are prefilled whole, and first
	piece    int    // tokens of the first prompt in work
	held     int    // Σ(input + output) of the batch
	tokens   int    // Σ tokens that the batch held when the stretch began
	steps    int    // decode steps that had ended when the stretch began
	made     int    // tokens made by then
	busy     place  // prefilling, running, or ahead: idle
	run      stretch
	count    int     // steps of the stretch until the next event
	next     float64 // when something happens; +Inf = nothing is planned
	at       int     // index in the agenda
	counted  int     // requests when it was last counted
	dead     bool
	to       model.Role // the role that it is launched anew for; "" = none
	back     float64    // when it is up again; +Inf = it drains
	busyFor  float64    // seconds of work that has ended
	busyFrom float64    // when the work without a pause began; set while works
	works    bool
	cache    *cache       // of prompts that begin alike; nil = none
	belief   prefix.Index // what the router takes it to hold of them
	guesses  bool         // lengths of answers are not known
	returned bool         // it was dead
	window   *window      // what the router sees of it; nil = all

	firsts, left []*job // of the last event
}

func (e *engine) addPrefill(j *job) {
	j.place = prefilling
	e.prefills.push(j)
}

func (e *engine) addDecode(j *job, now float64) {
	j.place, j.ready = joining, now
	if !j.unsplit {
		j.ready += e.model.transfer(j.input)
	}
	e.join.push(j)
	e.joinIn += j.input
	e.joinOut += j.told
}

// stir plans anew after something was added.
func (e *engine) stir(now float64) {
	switch e.busy {
	case ahead:
		e.begin(now)
	case running:
		e.plan(now)
	}
}

// begin starts what is next at a boundary.
func (e *engine) begin(now float64) {
	e.start(now)
	if works := e.busy != ahead; works != e.works {
		if e.works = works; works {
			e.busyFrom = now
		} else {
			e.busyFor += now - e.busyFrom
		}
	}
}

// worked is how many seconds the engine has worked.
func (e *engine) worked(now float64) float64 {
	if e.works {
		return e.busyFor + now - e.busyFrom
	}
	return e.busyFor
}

func (e *engine) start(now float64) {
	if j := e.prefills.head(); j != nil && e.chunk == 0 {
		e.lookUp(j)
		e.busy, e.next = prefilling, now+e.warm(j)
		return
	}
	for j := e.join.head(); j != nil && j.ready <= now && e.fits(j); j = e.join.head() {
		e.join.pop()
		j.place, j.leaves = running, e.steps+j.output
		e.enter(j)
		e.fresh = append(e.fresh, j)
		e.joinIn -= j.input
		e.joinOut -= j.told
		e.leaves += j.leaves
		e.held += j.input + j.output
		e.tokens += j.input
	}
	if e.prefills.len() > 0 {
		e.mix(now)
		return
	}
	if len(e.batch) > 0 {
		r := float64(len(e.batch))
		e.busy = running
		e.run = stretch{from: now, first: e.model.step(len(e.batch), e.tokens, e.slow), more: float64(e.slow * float64(e.model.Decode.M*r))}
		e.plan(now)
		return
	}
	e.busy, e.next = ahead, math.Inf(1)
	if j := e.join.head(); j != nil {
		e.next = j.ready
	}
}

// plan finds the next boundary of a running batch at which anything changes.
func (e *engine) plan(now float64) {
	if e.piece != 0 {
		return // one step, whatever comes
	}
	e.count = e.batch[0].leaves - e.steps
	if len(e.fresh) > 0 {
		e.count = 1
	}
	if e.prefills.len() > 0 {
		e.count = min(e.count, e.run.boundary(now))
	} else if j := e.join.head(); j != nil && e.fits(j) {
		e.count = min(e.count, e.run.boundary(math.Max(now, j.ready)))
	}
	e.next = e.run.end(e.count)
}

func (e *engine) fits(j *job) bool {
	return len(e.batch) < e.model.MaxRunning && e.held+j.input+j.output <= e.model.KVTokens
}

// fire ends what is in work at e.next. It returns the request that was prefilled, those that
// got their first token, and those that left; the slices are the engine's until the next call.
func (e *engine) fire() (ended *job, firsts, left []*job) {
	now, was := e.next, e.busy
	e.busy, e.firsts, e.left = ahead, e.firsts[:0], e.left[:0]
	switch was {
	case prefilling:
		ended = e.prefilled(now)
	case running:
		if e.piece != 0 {
			ended = e.prefilled(now)
		}
		r := len(e.batch)
		e.steps += e.count
		e.tokens += e.count * r
		e.made += e.count * r
		for _, j := range e.fresh {
			j.first = now
		}
		e.firsts, e.fresh = append(e.firsts, e.fresh...), e.fresh[:0]
		for len(e.batch) > 0 && e.batch[0].leaves == e.steps {
			j := e.leave()
			j.last = now
			e.leaves -= j.leaves
			e.held -= j.input + j.output
			e.tokens -= j.input + j.output
			e.left = append(e.left, j)
		}
	}
	return ended, e.firsts, e.left
}

// stepsBy is how many decode steps have ended by a moment before the next event.
func (e *engine) stepsBy(now float64) int {
	if e.busy != running {
		return e.steps
	}
	return e.steps + min(e.count, e.run.done(now))
}

// enter and leave keep the batch a heap by last step, then in order of arrival.
func (e *engine) enter(j *job) {
	b := append(e.batch, j)
	i := len(b) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !sooner(j, b[up]) {
			break
		}
		b[i] = b[up]
		i = up
	}
	b[i] = j
	e.batch = b
}

func (e *engine) leave() *job {
	b := e.batch
	top, last := b[0], b[len(b)-1]
	b[len(b)-1] = nil
	b = b[:len(b)-1]
	e.batch = b
	i := 0
	for {
		c := 2*i + 1
		if c >= len(b) {
			break
		}
		if c+1 < len(b) && sooner(b[c+1], b[c]) {
			c++
		}
		if !sooner(b[c], last) {
			break
		}
		b[i] = b[c]
		i = c
	}
	if len(b) > 0 {
		b[i] = last
	}
	return top
}

func sooner(a, b *job) bool {
	if a.leaves != b.leaves {
		return a.leaves < b.leaves
	}
	return a.seq < b.seq
}

// fifo is a queue that reuses its memory.
type fifo struct {
	list []*job
	from int
}

func (q *fifo) len() int { return len(q.list) - q.from }

func (q *fifo) head() *job {
	if q.len() == 0 {
		return nil
	}
	return q.list[q.from]
}

func (q *fifo) push(j *job) {
	if q.from > 32 && q.from*2 > len(q.list) {
		n := copy(q.list, q.list[q.from:])
		clear(q.list[n:])
		q.list, q.from = q.list[:n], 0
	}
	q.list = append(q.list, j)
}

func (q *fifo) pop() *job {
	j := q.list[q.from]
	q.list[q.from] = nil
	q.from++
	return j
}

func (q *fifo) all() []*job { return q.list[q.from:] }

package simulate

import (
	"context"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// world is one arm in motion.
type world struct {
	c       *Config
	policy  policy
	engines []*engine
	jobs    []job
	queue   events
	ctl     control.State
	handoff float64

	now                       float64
	count                     int // events
	offered, turned, complete int
	moves                     int
	dirty                     []*engine // changed by the event in work
}

func newWorld(c *Config, p policy) *world {
	w := &world{c: c, policy: p, ctl: control.New(c.Control, 0), jobs: make([]job, len(c.Arrivals))}
	prefill := p.prefill
	if prefill == 0 {
		prefill = c.Model.PrefillAtStart
	}
	for i := range c.Model.Engines {
		e := &engine{model: &c.Model, slow: c.Slow, index: i}
		e.ledger = ledger{id: fmt.Sprintf("e%03d", i), role: model.Decode, curve: c.Model.curve(), risk: 1, kappa: 1}
		if i < prefill {
			e.role = model.Prefill
		}
		w.engines = append(w.engines, e)
	}
	for i, a := range c.Arrivals {
		w.jobs[i] = job{id: fmt.Sprintf("%d-%d", c.Seed, i), at: a.At, input: a.Input, output: max(1, a.Output), scored: c.scores(a)}
	}
	w.queue.add(event{at: w.jobs[0].at, kind: arrival})
	w.queue.add(event{at: c.Interval, kind: tick})
	return w
}

// run plays all events until the last request is done.
func (w *world) run(ctx context.Context) error {
	for w.turned+w.complete < len(w.jobs) {
		if w.count%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := w.next(); err != nil {
			return fmt.Errorf("simulate %s: seed %d, event %d at %.6f s: %w", w.policy.name, w.c.Seed, w.count, w.now, err)
		}
	}
	return nil
}

// next applies one event and checks what came of it.
func (w *world) next() error {
	e := w.queue.next()
	w.count++
	before := w.now
	w.now = e.at
	w.dirty = w.dirty[:0]
	w.apply(e)
	if err := w.check(before); err != nil {
		return err
	}
	if e.kind == tick && len(w.queue.list) == 1 && w.turned+w.complete < len(w.jobs) {
		return fmt.Errorf("%d requests wait and nothing happens", w.offered-w.turned-w.complete)
	}
	return nil
}

func (w *world) apply(e event) {
	switch e.kind {
	case arrival:
		w.arrive(&w.jobs[w.offered])
		if w.offered < len(w.jobs) {
			w.queue.add(event{at: w.jobs[w.offered].at, kind: arrival})
		}
	case joinable:
		w.touch(e.engine)
		w.queue.advance(e.engine, w.now)
	case phaseEnd:
		w.touch(e.engine)
		w.end(e.engine)
	case tick:
		w.tick()
		w.queue.add(event{at: float64(int(w.now/w.c.Interval+0.5)+1) * w.c.Interval, kind: tick})
	}
}

func (w *world) touch(e *engine) { w.dirty = append(w.dirty, e) }

// end finishes an engine's prefill or step and starts what follows.
func (w *world) end(e *engine) {
	prefilled, firsts, left := e.finish(w.now)
	if j := prefilled; j != nil {
		prefillEnded(j, w.now)
		j.d.addDecode(j, w.now)
		w.touch(j.d)
		w.queue.add(event{at: j.ready, kind: joinable, engine: j.d})
	}
	if prefilled == nil {
		e.made += len(left) + len(e.batch)
	}
	for _, j := range firsts {
		w.learnHandoff(j)
	}
	for _, j := range left {
		j.place = done
		e.decoding = without(e.decoding, j)
		e.touched = true
		w.complete++
		w.ctl, _ = control.Step(w.ctl, control.Outcome{Input: j.input, Wanted: j.output, Output: j.output})
	}
	w.queue.advance(e, w.now)
}

// learnHandoff smooths the delay between a prefill's end and the first token elsewhere,
// less the token's own interval.
func (w *world) learnHandoff(j *job) {
	own := max(0, j.first-j.prefilled-j.d.curve.Interval(len(j.d.decoding), 0))
	if w.handoff == 0 {
		w.handoff = own
		return
	}
	w.handoff += 0.2 * (own - w.handoff)
}

// tick closes the interval and, unless the split is static, evaluates it.
func (w *world) tick() {
	for _, e := range w.engines {
		e.roll(w.c.Interval, w.c.Correction)
	}
	if w.policy.prefill > 0 {
		return
	}
	var actions []control.Action
	w.ctl, actions = control.Step(w.ctl, control.Tick{Snapshot: w.snapshot()})
	for _, a := range actions {
		if m, ok := a.(control.Move); ok {
			e := w.engine(m.Engine)
			e.role, e.roleSince = m.To, w.now
			w.moves++
			w.touch(e)
		}
	}
}

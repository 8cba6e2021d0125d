package simulate

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// world is one arm in motion.
type world struct {
	fleet
	c       *Config
	policy  policy
	kind    kind
	shape   string // the topology
	mind    chooser
	late    late // the mind, if it settles late
	request model.Request
	agenda  agenda
	free    []*job  // to be used again
	tallies []tally // by class
	line    *Timeline

	nextTick                  float64
	nextReport                float64 // +Inf = none
	strays                    []*job  // lost with an engine in this tick
	cached                    []int   // of the last request, by engine
	hashes                    prefix.Chain
	count                     int // events
	offered, turned, complete int
	there                     int // requests on engines
	moves                     int
	lost                      int       // with an engine
	away                      int       // engines that drain or are launched anew
	dirty                     []*engine // changed by the event in work
	thorough                  bool      // look at every request after every event
}

func newWorld(c *Config, p policy) *world {
	w := &world{c: c, policy: p, kind: p.kind(), shape: p.shape(), nextTick: c.Interval, nextReport: math.Inf(1), tallies: make([]tally, len(c.classes)), thorough: c.thorough}
	w.snap = model.Snapshot{Params: c.Params, Engines: make([]model.EngineView, c.Model.Engines)}
	w.mind = w.kind.build(c, book{w.settings()})
	w.late, _ = w.mind.(late)
	if c.Timeline {
		w.line = newTimeline(c)
	}
	prefill := w.prefillAtStart()
	for i := range w.snap.Engines {
		e := &engine{model: &c.Model, slow: c.Slow, index: i, next: math.Inf(1)}
		e.chunk = w.kind.chunk
		if c.PrefixTokens > 0 {
			e.cache = &cache{limit: c.PrefixTokens}
			e.belief.SetLimit(c.Model.KVTokens / headChunk)
		}
		e.plain, e.guesses = !w.kind.learns, c.Trouble.Lengths != Exactly
		v := &w.snap.Engines[i]
		*v = model.EngineView{ID: fmt.Sprintf("e%03d", i), Role: model.Decode, Live: true, Curve: c.Model.curve(), Risk: 1, Correction: 1, PrefillCorrection: 1, Later: e}
		if i < prefill {
			v.Role = model.Prefill
		}
		e.v, e.learn, e.memory = v, c.Correction, math.Inf(1)
		if c.Alpha > 0 {
			e.memory = c.Interval / c.Alpha
		}
		w.engines = append(w.engines, e)
		w.agenda.add(e)
	}
	for _, u := range c.Unlike {
		if u.Slow > 0 {
			w.engines[u.Engine].slow *= u.Slow
		}
	}
	if c.Trouble.Report > 0 {
		w.reporting()
	}
	return w
}

// run plays all events until the last request is done.
func (w *world) run(ctx context.Context) error {
	for w.turned+w.complete+w.lost < len(w.c.Arrivals) {
		if w.count%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := w.step(); err != nil {
			return fmt.Errorf("simulate %s: seed %d, event %d at %.6f s: %w", w.policy.name, w.c.Seed, w.count, w.now, err)
		}
	}
	return nil
}

// step applies the next event and checks what came of it. At one moment engines come first,
// then arrivals, then the tick.
func (w *world) step() error {
	e, arrives := w.agenda.first(), math.Inf(1)
	if w.offered < len(w.c.Arrivals) {
		arrives = w.c.Arrivals[w.offered].At
	}
	w.count++
	before := w.now
	w.dirty = w.dirty[:0]
	ticks := false
	switch {
	case w.nextReport < w.nextTick && w.nextReport < e.next && w.nextReport < arrives:
		w.now = w.nextReport
		w.report()
	case e.next <= arrives && e.next <= w.nextTick:
		w.now = e.next
		w.end(e)
	case arrives <= w.nextTick:
		w.now = arrives
		w.arrive(w.job())
	default:
		if ticks = true; math.IsInf(e.next, 1) && math.IsInf(arrives, 1) {
			return fmt.Errorf("%d requests wait and nothing happens", w.inflight())
		}
		w.now = w.nextTick
		w.tick()
		w.nextTick = float64(math.Round(w.now/w.c.Interval)+1) * w.c.Interval
	}
	return w.check(before, ticks || w.thorough)
}

// job takes the next arrival.
func (w *world) job() *job {
	n := w.offered
	a := &w.c.Arrivals[n]
	w.offered++
	var j *job
	if k := len(w.free); k > 0 {
		j, w.free = w.free[k-1], w.free[:k-1]
	} else {
		j = new(job)
	}
	var b [48]byte
	id := strconv.AppendInt(append(strconv.AppendUint(b[:0], w.c.Seed, 10), '-'), int64(n), 10)
	*j = job{id: string(id), seq: n, at: a.At, input: a.Input, output: max(1, a.Output), class: w.c.classOf(n)}
	j.head = w.c.head(n)
	j.told, j.wanted = j.output, w.c.Trouble.wanted(w.c.Seed, n, j.output)
	w.tallies[j.class].offered++
	return j
}

func (w *world) touch(e *engine) { w.dirty = append(w.dirty, e) }

// end finishes an engine's prefill or step and starts what follows.
func (w *world) end(e *engine) {
	prefilled, firsts, left := e.fire()
	w.touch(e)
	if j := prefilled; j != nil {
		first := !e.prefillWork.Seen()
		w.shown(j)
		if w.late != nil {
			w.look()
			w.resettle(j, w.late.settle(&w.fleet, j))
		}
		prefillEnded(j, w.now)
		if first {
			w.expect()
		}
		if j.d.dead {
			j.d.live--
			w.strays = append(w.strays, j)
		} else {
			j.d.addDecode(j, w.now)
		}
		if j.d != e && !j.d.dead {
			j.d.stir(w.now)
			w.agenda.fix(j.d)
			w.touch(j.d)
		}
	}
	for _, j := range firsts {
		w.learnHandoff(j)
	}
	if len(left) > 0 {
		e.settle(w.now)
	}
	for _, j := range left {
		j.place = done
		e.live--
		w.kept(e, j)
		w.complete++
		w.mind.ended(j.input, j.wanted, j.output)
		w.mind.missed(w.now, j.lacked(w.c.Params))
		w.tallies[j.class].completed(w.c.Params, j)
		if w.line != nil {
			w.line.first(j)
		}
		w.free = append(w.free, j)
	}
	e.begin(w.now)
	w.agenda.fix(e)
	w.retryAll()
}

// learnHandoff smooths the delay between a prefill's end and the first token elsewhere,
// less the token's own interval.
func (w *world) learnHandoff(j *job) {
	w.sum, w.n = w.sum+j.first-j.prefilled, w.n+1
	own := max(0, j.first-j.prefilled-j.d.v.Curve.Interval(j.d.live, 0))
	if w.snap.Handoff == 0 {
		w.snap.Handoff = own
		return
	}
	w.snap.Handoff += float64(0.2 * (own - w.snap.Handoff))
}

// look brings the snapshot up to now.
func (w *world) look() {
	w.snap.At = w.now
	for i, e := range w.engines {
		if e.window != nil {
			e.window.show(&w.snap.Engines[i], w.now)
			continue
		}
		e.look(w.now)
	}
}

// expect gives engines that have not worked yet the corrections of those that have.
func (w *world) expect() {
	if !w.kind.learns {
		return
	}
	profile.Presume(len(w.engines), func(i int) (profile.Ratio, *float64) {
		return w.engines[i].prefillWork, &w.engines[i].v.PrefillCorrection
	})
	profile.Presume(len(w.engines), func(i int) (profile.Ratio, *float64) { return w.engines[i].decodeWork, &w.engines[i].v.Correction })
}

// tick closes the interval and, unless the split is static, evaluates it.
func (w *world) tick() {
	for _, e := range w.engines {
		e.roll(w.now, w.c.Interval)
	}
	w.expect()
	w.handoff, w.sum, w.n = w.sum/max(1, w.n), 0, 0
	w.fail()
	w.relaunch()
	if w.line != nil {
		w.line.tick(w)
	}
	if !w.policy.moves() || w.away > 0 {
		return
	}
	w.look()
	for _, m := range w.mind.tick(&w.fleet) {
		w.move(w.engine(m.Engine), m.To)
	}
}

func (w *world) inflight() int { return w.offered - w.turned - w.complete - w.lost }

package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// again is a chooser that places a request anew whose first placement was lost.
type again interface {
	again(f *fleet, r *model.Request) placement
}

// again implements it with the router's own rule: lateness refuses nobody who was admitted.
func (s *standing) again(f *fleet, r *model.Request) placement {
	d := sched.Place(&f.snap, r, f.now, &s.scratch)
	if !d.Placed {
		return placement{}
	}
	return placement{f.engine(d.Prefill), f.engine(d.Decode), d.Own, d.Parts.Queue}
}

// retry places a request anew that was lost with an engine, or ends it: a client that has seen
// a token is not served again, and nobody more often than is configured.
func (w *world) retry(j *job) {
	if j.first > 0 || j.tries+1 >= w.c.Trouble.Attempts {
		w.lose(j)
		return
	}
	j.tries++
	j.done, j.begun, j.hit = 0, false, 0
	w.request = model.Request{ID: j.id, Arrived: j.at, Input: j.input, Expected: j.expected, Unsplit: j.unsplit, Cached: w.believed(j)}
	w.look()
	var at placement
	if m, ok := w.mind.(again); ok {
		at = m.again(&w.fleet, &w.request)
	} else {
		at = w.mind.place(&w.fleet, &w.request)
	}
	if at.p == nil {
		w.lose(j)
		return
	}
	w.assign(j, at)
}

// assign gives a request its engines.
func (w *world) assign(j *job, at placement) {
	j.p, j.d, j.own, j.queue, j.placed = at.p, at.d, at.own, at.queue, w.now
	w.touch(j.p)
	if j.d != j.p {
		w.touch(j.d)
	}
	j.cached, j.sent = w.request.Held(j.p.index), w.sent(j)
	reserve(j, w.now)
	w.gave(j)
	j.p.addPrefill(j)
	j.p.stir(w.now)
	w.agenda.fix(j.p)
}

// fail ends the engines whose time has come, with what is on them, and brings back those whose
// time is over. Then whoever may tries again.
func (w *world) fail() {
	for _, u := range w.c.Unlike {
		e := w.engines[u.Engine]
		switch {
		case u.Dies <= 0 || w.now < u.Dies:
		case !e.dead && !e.returned:
			w.kill(e)
		case e.dead && u.Back > 0 && w.now >= u.Back:
			e.dead, e.returned = false, true
			e.v.Live, e.v.RoleSince, e.settledAt = true, w.now, w.now
			w.touch(e)
		}
	}
	w.retryAll()
}

// retryAll gives all that were lost a second try.
func (w *world) retryAll() {
	for _, j := range w.strays {
		w.retry(j)
	}
	w.strays = w.strays[:0]
}

package simulate

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// settings fits the router's parameters to the arm and returns its controller at the start.
func (w *world) settings() control.State {
	par, ctl := &w.snap.Params, w.c.Control
	if !w.kind.lends || w.shape == Aggregated || w.shape == ColdSwap {
		par.Lend, ctl.Lends = 0, false
	}
	if w.shape == ColdSwap {
		par.FixedRoles = true
	}
	return control.New(ctl, 0)
}

// prefillAtStart is how many engines begin as prefill.
func (w *world) prefillAtStart() int {
	switch {
	case w.shape == Aggregated:
		return 0
	case w.policy.prefill > 0:
		return w.policy.prefill
	}
	return w.c.Model.PrefillAtStart
}

// move changes an engine's role, at once or after it was launched anew. The last live engine
// of a role stays.
func (w *world) move(e *engine, to model.Role) {
	if !e.v.Live || e.v.Role == to {
		return
	}
	w.touch(e)
	if w.shape != ColdSwap {
		e.v.Role, e.v.RoleSince = to, w.now
		w.moves++
		return
	}
	alike := 0
	for _, o := range w.engines {
		if o.v.Live && o.v.Role == e.v.Role {
			alike++
		}
	}
	if alike < 2 {
		return
	}
	w.moves++
	w.away++
	e.v.Live, e.to, e.back = false, to, math.Inf(1)
}

// relaunch stops engines that have drained and brings back those that are up again. While one
// is away nothing else moves.
func (w *world) relaunch() {
	if w.away == 0 {
		return
	}
	for _, e := range w.engines {
		switch {
		case e.to == "" || e.dead:
		case w.now >= e.back:
			e.v.Live, e.v.Role, e.v.RoleSince, e.to = true, e.to, w.now, ""
			w.away--
			w.touch(e)
		case math.IsInf(e.back, 1) && e.prefills.len()+e.join.len()+len(e.batch)+len(e.pending) == 0:
			e.back = w.now + w.c.Relaunch
		}
	}
}

// kill ends an engine. What is on it strays until the end of the tick.
func (w *world) kill(e *engine) {
	e.settle(w.now)
	for _, j := range e.prefills.all() {
		j.d.settle(w.now)
		j.d.forget(j)
	}
	for _, jobs := range [][]*job{e.prefills.all(), e.join.all(), e.batch} {
		w.strays = append(w.strays, jobs...)
	}
	if e.to != "" {
		w.away--
	}
	e.prefills, e.join, e.batch, e.fresh = fifo{}, fifo{}, nil, nil
	e.held, e.tokens, e.leaves, e.joinIn, e.joinOut, e.waiting, e.live = 0, 0, 0, 0, 0, 0, 0
	e.piece, e.whole, e.waitIn, e.behind, e.prefillFree = 0, 0, 0, 0, 0
	e.made, e.busy, e.next = e.settled, ahead, math.Inf(1)
	e.dead, e.v.Live, e.to = true, false, ""
	if e.cache != nil {
		*e.cache = cache{limit: e.cache.limit}
		e.belief.Clear()
	}
	if e.window != nil {
		e.window.clear()
	}
	w.agenda.fix(e)
	w.touch(e)
}

// lose ends a request with its engine.
func (w *world) lose(j *job) {
	j.place = done
	w.lost++
	w.tallies[j.class].failed++
	w.free = append(w.free, j)
}

// resettle changes where a request will decode.
func (w *world) resettle(j *job, d *engine) {
	if d == j.d {
		return
	}
	j.d.forget(j)
	w.touch(j.d)
	j.d = d
	d.await(j)
}

package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// arrive admits or refuses. A request that no engine's cache holds whole is refused, since
// no engine takes it.
func (w *world) arrive(j *job) {
	inflight := w.offered - w.turned - w.complete
	w.offered++
	if w.c.Inflight > 0 && inflight >= w.c.Inflight {
		w.refuse(j)
		return
	}
	w.ctl, _ = control.Step(w.ctl, control.Arrival{At: w.now, Input: j.input, Wanted: j.output})
	if j.input+j.output > w.c.Model.KVTokens {
		w.refuse(j)
		return
	}
	r := model.Request{ID: j.id, Arrived: j.at, Input: j.input, Expected: w.ctl.Expect(j.output)}
	d := sched.Admit(w.snapshot(), r, w.now)
	if !d.Placed {
		w.refuse(j)
		return
	}
	j.p, j.d, j.own, j.queue, j.placed = w.engine(d.Prefill), w.engine(d.Decode), d.Own, d.Parts.Queue, w.now
	w.touch(j.p)
	w.touch(j.d)
	reserve(j, w.now)
	j.p.addPrefill(j)
	w.queue.advance(j.p, w.now)
}

func (w *world) refuse(j *job) {
	j.place = refused
	w.turned++
}

func (w *world) snapshot() model.Snapshot {
	s := model.Snapshot{At: w.now, Params: w.c.Params, Handoff: w.handoff, Engines: make([]model.EngineView, len(w.engines))}
	for i, e := range w.engines {
		s.Engines[i] = e.view(w.now)
	}
	return s
}

func (w *world) engine(id string) *engine {
	for _, e := range w.engines {
		if e.id == id {
			return e
		}
	}
	return nil
}

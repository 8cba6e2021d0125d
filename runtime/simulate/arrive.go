package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// arrive admits or refuses. A request that no engine's cache holds whole is refused, since
// no engine takes it.
func (w *world) arrive(j *job) {
	inflight := w.offered - 1 - w.turned - w.complete
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
	w.look()
	d := sched.Admit(&w.snap, &r, w.now, &w.scratch)
	if !d.Placed {
		w.refuse(j)
		return
	}
	j.p, j.d, j.own, j.queue, j.placed = w.engine(d.Prefill), w.engine(d.Decode), d.Own, d.Parts.Queue, w.now
	w.touch(j.p)
	if j.d != j.p {
		w.touch(j.d)
	}
	reserve(j, w.now)
	j.p.addPrefill(j)
	j.p.stir(w.now)
	w.agenda.fix(j.p)
}

func (w *world) refuse(j *job) {
	w.tallies[j.class].refused++
	w.turned++
	w.free = append(w.free, j)
}

func (w *world) engine(id string) *engine {
	for _, e := range w.engines {
		if e.v.ID == id {
			return e
		}
	}
	return nil
}

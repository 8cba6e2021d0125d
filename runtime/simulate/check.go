package simulate

import (
	"errors"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// check holds the state against what must be true after every event. It counts the requests
// of the engines that the event touched; nothing else can have changed. whole also looks at
// every request of every engine.
func (w *world) check(before float64, whole bool) error {
	if w.now < before {
		return fmt.Errorf("time runs back from %.6f s", before)
	}
	for _, e := range w.dirty {
		n := e.prefills.len() + e.join.len() + len(e.batch)
		w.there += n - e.counted
		e.counted = n
		if e.waiting != e.prefills.len() || e.live != e.join.len()+len(e.batch) {
			return fmt.Errorf("engine %s: router counts %d prefills and %d decodes, engine has %d and %d", e.v.ID, e.waiting, e.live, e.prefills.len(), e.join.len()+len(e.batch))
		}
		if len(e.batch) > e.model.MaxRunning || e.held > e.model.KVTokens {
			return fmt.Errorf("engine %s: the batch is over its limits", e.v.ID)
		}
	}
	if inflight := w.inflight(); w.there != inflight {
		return fmt.Errorf("%d requests on engines, %d in flight", w.there, inflight)
	}
	if !whole {
		return nil
	}
	p, d := 0, 0
	for _, e := range w.engines {
		if e.v.Role == model.Prefill {
			p++
		} else {
			d++
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("engine %s: %w", e.v.ID, err)
		}
	}
	if w.policy.moves() && (p < w.c.Control.MinPrefill || d < w.c.Control.MinDecode) {
		return fmt.Errorf("split %dP%dD is below the floors", p, d)
	}
	return nil
}

func (e *engine) check() error {
	for _, j := range e.prefills.all() {
		if j.place != prefilling || j.p != e {
			return fmt.Errorf("request %s is not where its prefill is", j.id)
		}
	}
	for _, j := range e.join.all() {
		if j.place != joining || j.d != e {
			return fmt.Errorf("request %s is not where it should join", j.id)
		}
	}
	for _, j := range e.pending {
		if j.place != prefilling || j.d != e {
			return fmt.Errorf("request %s is awaited and not in prefill", j.id)
		}
	}
	held, tokens, leaves := 0, 0, 0
	for _, j := range e.batch {
		if j.place != running || j.d != e || j.leaves <= e.steps {
			return fmt.Errorf("request %s runs and should not", j.id)
		}
		held += j.input + j.output
		tokens += j.input + j.output - (j.leaves - e.steps)
		leaves += j.leaves
	}
	switch {
	case held != e.held || tokens != e.tokens || leaves != e.leaves:
		return errors.New("the batch's tokens do not add up")
	case e.busy == ahead && e.prefills.len()+len(e.batch) > 0:
		return errors.New("idle with work")
	case e.busy == running && len(e.batch) == 0 || e.busy == prefilling && e.prefills.len() == 0:
		return errors.New("busy without work")
	}
	return nil
}

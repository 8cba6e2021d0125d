package simulate

import (
	"errors"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// check holds the state against what must be true after every event. Requests are looked
// at on the engines that the event touched; nothing else can have changed.
func (w *world) check(before float64) error {
	if w.now < before {
		return fmt.Errorf("time runs back from %.6f s", before)
	}
	there, p, d := 0, 0, 0
	for _, e := range w.engines {
		there += len(e.prefills) + len(e.join) + len(e.batch)
		if e.role == model.Prefill {
			p++
		} else {
			d++
		}
	}
	if inflight := w.offered - w.turned - w.complete; there != inflight {
		return fmt.Errorf("%d requests on engines, %d in flight", there, inflight)
	}
	if p < w.c.Control.MinPrefill || d < w.c.Control.MinDecode {
		if w.policy.prefill == 0 {
			return fmt.Errorf("split %dP%dD is below the floors", p, d)
		}
	}
	for _, e := range w.dirty {
		if err := e.check(); err != nil {
			return fmt.Errorf("engine %s: %w", e.id, err)
		}
	}
	return nil
}

func (e *engine) check() error {
	if len(e.prefilling) != len(e.prefills) || len(e.decoding) != len(e.join)+len(e.batch) {
		return fmt.Errorf("router counts %d prefills and %d decodes, engine has %d and %d", len(e.prefilling), len(e.decoding), len(e.prefills), len(e.join)+len(e.batch))
	}
	for i, j := range e.prefills {
		if j.place != prefilling || j.p != e || e.prefilling[i] != j {
			return fmt.Errorf("request %s is not where its prefill is", j.id)
		}
	}
	for _, j := range e.join {
		if j.place != joining || j.d != e || j.made != 0 {
			return fmt.Errorf("request %s is not where it should join", j.id)
		}
	}
	for _, j := range e.pending {
		if j.place != prefilling || j.d != e {
			return fmt.Errorf("request %s is awaited and not in prefill", j.id)
		}
	}
	held, tokens := 0, 0
	for _, j := range e.batch {
		if j.place != running || j.d != e || j.made >= j.output {
			return fmt.Errorf("request %s runs and should not", j.id)
		}
		held += j.input + j.output
		tokens += j.input + j.made
	}
	switch {
	case held != e.held || tokens != e.tokens:
		return errors.New("the batch's tokens do not add up")
	case len(e.batch) > e.model.MaxRunning || held > e.model.KVTokens:
		return errors.New("the batch is over its limits")
	case e.busy == ahead && len(e.prefills)+len(e.batch) > 0:
		return errors.New("idle with work")
	case e.busy == running && len(e.batch) == 0 || e.busy == prefilling && len(e.prefills) == 0:
		return errors.New("busy without work")
	}
	return nil
}

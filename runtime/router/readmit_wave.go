package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// validateWave returns the whole fleet at once, or nobody.
func (r *Router) validateWave(ctx context.Context, engines []string) (no *refusedOrder) {
	var all []*candidate
	was := map[*node]string{}
	r.own.do(func() {
		o := r.own
		switch {
		case !o.all(engines):
			no = conflict("a whole wave names every engine or none")
		case o.wave == "" && o.required == "":
			no = conflict("no whole-wave drain is active")
		case o.wave == "":
			no = o.takeRequired()
		}
		for _, n := range o.nodes {
			switch {
			case no != nil:
			case n.state != stateDrained && n.state != stateBlocked:
				no = conflict("%s is %s, expected drained", n.id, n.state)
			case n.oldStart == nil:
				no = conflict("%s has no recorded pre-restart process identity", n.id)
			}
		}
		if no != nil {
			return
		}
		for _, n := range o.nodes {
			c := r.noting(o.candidate(n))
			c.old, was[n] = n.oldStart, n.ejected
			all = append(all, c)
			o.startValidation(n)
		}
		o.lifecycleEvent(nil, "validation_started", eventField{"engines", engineIDs(o.nodes)})
	})
	if no != nil {
		return no
	}
	r.validateAll(ctx, all)
	r.own.do(func() { no = r.own.endWave(all, was) })
	return no
}

// takeRequired makes the wave that an ejection asks for: what served last is what was to be
// replaced, whether its engine was restarted since then or not.
func (o *owner) takeRequired() *refusedOrder {
	held, no := o.drainAll(nil, defaultDrain)
	for _, n := range held {
		if n.known {
			n.oldStart = ptr(n.facts.identity.ProcessStart)
			o.lifecycleEvent(n, "process_recorded", eventField{"process_start", *n.oldStart})
		}
		o.settleDrain(n, o.now())
	}
	return no
}

// endWave judges the validation of a wave: all engines return, or the wave goes on.
func (o *owner) endWave(all []*candidate, was map[*node]string) *refusedOrder {
	lost, failed := o.notInControl(), false
	for _, c := range all {
		if c.err == nil && c.n.ejected != was[c.n] {
			c.err = fmt.Errorf("engine was ejected while it was validated: %s", c.n.ejected)
		}
		failed = failed || c.err != nil
	}
	for _, c := range all {
		switch {
		case lost != nil:
			o.block(c.n, errors.New(lost.text))
		case c.err != nil:
			o.block(c.n, c.err)
		case failed:
			c.n.state = stateDrained
		default:
			o.takeBack(c)
		}
	}
	switch {
	case lost != nil:
		return lost
	case failed:
		return conflict("readmission validation failed")
	}
	o.wave, o.required = "", ""
	o.lifecycleEvent(nil, "wave_readmitted", eventField{"engines", engineIDs(o.nodes)})
	o.publish()
	return nil
}

// validateWidth is how many engines of a wave are validated at a time.
const validateWidth = 8

// validateAll validates a wave; each candidate's err tells. First every engine by itself:
// no KV moves to one that is not known to be well.
func (r *Router) validateAll(ctx context.Context, all []*candidate) {
	each := func(f func(i int, c *candidate)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, validateWidth)
		for i, c := range all {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				f(i, c)
			})
		}
		wg.Wait()
	}
	each(func(_ int, c *candidate) { c.err = r.checkProcess(ctx, c) })
	well := make([]*candidate, len(all))
	for i, c := range all {
		peer := *c // what later checks find is the candidate's own
		peer.checked, peer.note = true, func(string) {}
		well[i] = &peer
	}
	each(func(i int, c *candidate) {
		if c.err == nil {
			// Each begins with the engine after it, so that no peer has all the work.
			c.err = r.checkTransfers(ctx, c, slices.Concat(well[i+1:], well[:i]))
		}
	})
}

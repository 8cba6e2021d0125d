package router

import (
	"context"
	"errors"
	"sync"
)

// readmitWave examines every engine of a fleet without a contract at once and ends the
// fleet-wide hold when all of them are well, told who they are and agree with each other.
// Otherwise the hold stays.
func (r *Router) readmitWave(ctx context.Context, engines []string) (no *refusedOrder) {
	if r.own.do(func() {
		if !r.own.all(engines) {
			no = conflict("a whole wave names every engine or none")
		}
	}); no != nil {
		return no
	}
	found := make([]facts, len(r.own.nodes))
	errs := make([]error, len(r.own.nodes))
	var wg sync.WaitGroup
	for i, n := range r.own.nodes {
		wg.Go(func() { found[i], errs[i] = r.set.examine(ctx, n) })
	}
	wg.Wait()
	r.own.do(func() {
		o := r.own
		for i, n := range o.nodes {
			if errs[i] != nil {
				if n.draining {
					n.state = stateBlocked
				}
				n.fault = faultText(errs[i])
				no = conflict("engine %s: %v", n.id, errs[i])
				o.lifecycleEvent(n, "validation_failed")
			}
		}
		for i, n := range o.nodes {
			for j, m := range o.nodes[:i] {
				if err := differ(n.id, found[i], m.id, found[j]); err != nil && no == nil {
					no = conflict("%v", err)
				}
			}
		}
		if no == nil {
			o.openWave(found)
		}
	})
	return no
}

// openWave takes every engine back and admits again.
func (o *owner) openWave(found []facts) {
	held := o.wave != "" || o.required != ""
	for i, n := range o.nodes {
		o.takeBack(&candidate{n: n, f: found[i]})
	}
	o.wave, o.required = "", ""
	if held {
		o.lifecycleEvent(nil, "wave_readmitted", eventField{"engines", engineIDs(o.nodes)})
	}
	o.publish()
}

// readmitOne returns one held engine of a fleet without a contract, drained or not.
func (r *Router) readmitOne(ctx context.Context, engines []string) (no *refusedOrder) {
	var n *node
	r.own.do(func() {
		switch {
		case len(engines) != 1:
			no = conflict("a readmission without wave names exactly one engine, not %d", len(engines))
			return
		case r.own.wave != "":
			no = conflict("the whole fleet is held by wave %s: readmit with wave", r.own.wave)
			return
		}
		if n = r.own.node(engines[0]); n == nil {
			no = conflict("unknown engine %q", engines[0])
		} else if !n.draining {
			no = conflict("%s is %s, expected drained", n.id, n.state)
		} else {
			r.own.lifecycleEvent(n, "validation_started")
		}
	})
	if no != nil {
		return no
	}
	f, err := r.set.examine(ctx, n)
	r.own.do(func() {
		if err != nil {
			var gen *generationError
			r.own.block(n, err)
			no = conflict("%v", err)
			if errors.As(err, &gen) {
				no = conflict("profile generation: %v", err)
			}
			return
		}
		r.own.takeBack(&candidate{n: n, f: f})
		r.own.lifecycleEvent(n, "readmitted")
		r.own.publish()
	})
	return no
}

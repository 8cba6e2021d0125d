package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// interrupted is the fault of a validation that another router took over.
const interrupted = "readmission validation was interrupted by router replacement"

// readmitCall ends a hold or returns a drained engine. A contracted fleet validates it; any
// other asks the engine who it is, so that a drain can be undone.
func (r *Router) readmitCall(w http.ResponseWriter, q *http.Request) {
	ord, ok := r.readOrder(w, q)
	if !ok {
		return
	}
	ctx, cancel := r.whileRunning(q.Context())
	defer cancel()
	var no *refusedOrder
	r.own.do(func() { no = r.own.notInControl() })
	switch {
	case no != nil:
	case ord.Wave && r.set.contracted():
		no = r.validateWave(ctx, ord.Engines)
	case ord.Wave:
		no = r.readmitWave(ctx, ord.Engines)
	case r.set.contracted():
		no = r.validateOne(ctx, ord.Engines)
	default:
		no = r.readmitOne(ctx, ord.Engines)
	}
	r.answerOrder(ctx, w, no)
}

// whileRunning ends ctx when the router stops.
func (r *Router) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.watching, cancel)
	return ctx, func() { stop(); cancel() }
}

// validateOne returns one drained engine of a contracted fleet.
func (r *Router) validateOne(ctx context.Context, engines []string) (no *refusedOrder) {
	var c *candidate
	var peers []*candidate
	was := ""
	r.own.do(func() {
		var n *node
		if n, no = r.own.returning(engines); no != nil {
			return
		}
		c, was = r.noting(r.own.candidate(n)), n.ejected
		c.old = n.oldStart
		peers = r.own.livePeers(n)
		r.own.startValidation(n)
		r.own.lifecycleEvent(n, "validation_started")
	})
	if no != nil {
		return no
	}
	err := r.validate(ctx, c, peers)
	r.own.do(func() {
		o := r.own
		if lost := o.notInControl(); lost != nil {
			o.block(c.n, errors.New(lost.text))
			no = lost
			return
		}
		if err == nil && c.n.ejected != was {
			err = fmt.Errorf("engine was ejected while it was validated: %s", c.n.ejected)
		}
		if err != nil {
			o.block(c.n, err)
			no = conflict("readmission validation failed")
			return
		}
		o.takeBack(c)
		o.lifecycleEvent(c.n, "readmitted")
		o.publish()
	})
	return no
}

// returning is the engine that one readmission names, if it may be validated now.
func (o *owner) returning(engines []string) (*node, *refusedOrder) {
	if len(engines) != 1 {
		return nil, conflict("a readmission without wave names exactly one engine, not %d", len(engines))
	}
	n := o.node(engines[0])
	switch {
	case n == nil:
		return nil, conflict("unknown engine %q", engines[0])
	case o.wave != "":
		return nil, conflict("%s is held by wave %s: readmit with wave", n.id, o.wave)
	case n.state != stateDrained && n.state != stateBlocked:
		return nil, conflict("%s is %s, expected drained", n.id, n.state)
	case n.oldStart == nil:
		return nil, conflict("%s has no recorded pre-restart process identity", n.id)
	case !n.idle():
		return nil, conflict("%s still has requests", n.id)
	}
	return n, nil
}

// livePeers are the engines that serve beside n, in the fleet's order.
func (o *owner) livePeers(n *node) (list []*candidate) {
	for _, m := range o.nodes {
		if m != n && m.live() {
			list = append(list, o.candidate(m))
		}
	}
	return list
}

func (o *owner) startValidation(n *node) {
	n.state, n.fault, n.checks, n.newStart = stateValidating, "", nil, nil
}

// block keeps an engine out after its validation has failed.
func (o *owner) block(n *node, err error) {
	n.state, n.fault = stateBlocked, faultText(err)
	o.lifecycleEvent(n, "validation_failed")
}

// faultText words a fault for documents: engines have their share in it.
func faultText(err error) string { return engine.Printable(err.Error(), maxFault) }

// maxFault bounds a fault in a document, in bytes.
const maxFault = 400

// takeBack lets a validated engine serve again.
func (o *owner) takeBack(c *candidate) {
	n := c.n
	if n.ejected != "" {
		o.readmit(n, c.f, "lifecycle")
	}
	o.unhold(n, endLifecycle)
	o.absolve(n, classes...)
	o.accept(n, c.f)
	n.draining, n.state, n.fault, n.newStart = false, stateActive, "", ptr(c.f.identity.ProcessStart)
	_ = o.adopt(n)
}

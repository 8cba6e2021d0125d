package router

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// refusedOrder is why a lifecycle call was not carried out, with its status.
type refusedOrder struct {
	status int
	text   string
}

func conflict(format string, a ...any) *refusedOrder {
	return &refusedOrder{http.StatusConflict, fmt.Sprintf(format, a...)}
}

func unavailable(format string, a ...any) *refusedOrder {
	return &refusedOrder{http.StatusServiceUnavailable, fmt.Sprintf(format, a...)}
}

// notInControl is the answer of a router that may not decide over the fleet.
func (o *owner) notInControl() *refusedOrder {
	if p := o.view.Load(); !p.controls() {
		return unavailable("this router does not control the fleet: %s", p.reason())
	}
	return nil
}

// contracted reports whether the fleet has a complete engine contract, so that every
// process can be told from the one before.
func (s *settings) contracted() bool {
	c := s.Fleet.EngineContract
	return c != nil && len(c.Missing(s.dialect.Name())) == 0
}

// defaultDrain is deadline_s of an order that names none, seconds.
const defaultDrain = 300.0

// mostDrain is the longest deadline_s, seconds: the moment that it ends fits a handoff.
const mostDrain = 1e9

// drain takes one engine out of placement, or with wave every engine: then no request is
// admitted at all until readmit with wave. Residents finish.
func (r *Router) drain(w http.ResponseWriter, q *http.Request) {
	ord, ok := r.readOrder(w, q)
	if !ok {
		return
	}
	limit := defaultDrain
	if ord.Deadline != nil {
		limit = *ord.Deadline
	}
	var no *refusedOrder
	var held []*node
	r.own.do(func() {
		switch o := r.own; {
		case o.notInControl() != nil:
			no = o.notInControl()
		case !(limit > 0 && limit <= mostDrain):
			no = conflict("deadline_s must be positive and finite, and at most %g", mostDrain)
		case ord.Wave:
			held, no = o.drainAll(ord.Engines, limit)
		default:
			held, no = o.drainOne(ord.Engines, limit)
		}
	})
	if no == nil {
		no = r.recordProcesses(q.Context(), held)
	}
	r.answerOrder(q.Context(), w, no)
}

// drainAll stops admission for the whole fleet. Ordering it twice is one order.
func (o *owner) drainAll(engines []string, limit float64) ([]*node, *refusedOrder) {
	if !o.all(engines) {
		return nil, conflict("a whole wave names every engine or none")
	}
	if o.wave != "" {
		return o.unrecorded(), nil
	}
	for _, n := range o.nodes {
		if n.draining && slices.ContainsFunc(o.nodes, (*node).live) {
			return nil, conflict("lifecycle action already active for %s", n.id)
		}
	}
	o.wave = requestID()
	for _, n := range o.nodes {
		o.take(n, o.wave, limit)
	}
	o.publish()
	o.set.Logger.Info("admission held", "wave", o.wave)
	o.lifecycleEvent(nil, "wave_started", eventField{"engines", engineIDs(o.nodes)})
	return o.nodes, nil
}

// all reports whether a list names every engine, as an empty one does.
func (o *owner) all(engines []string) bool {
	for _, n := range o.nodes {
		if len(engines) > 0 && !slices.Contains(engines, n.id) {
			return false
		}
	}
	return len(engines) == 0 || len(engines) == len(o.nodes)
}

// unrecorded are the held engines whose process is not known yet.
func (o *owner) unrecorded() (list []*node) {
	for _, n := range o.nodes {
		if n.draining && n.oldStart == nil {
			list = append(list, n)
		}
	}
	return list
}

func (o *owner) drainOne(engines []string, limit float64) ([]*node, *refusedOrder) {
	if len(engines) != 1 {
		return nil, conflict("a drain without wave names exactly one engine, not %d", len(engines))
	}
	n := o.node(engines[0])
	switch {
	case n == nil:
		return nil, conflict("unknown engine %q", engines[0])
	case o.set.wholeWave():
		return nil, conflict("this fleet restarts as a whole: drain it with wave")
	case o.wave != "":
		return nil, conflict("the whole fleet is held by wave %s", o.wave)
	case n.draining && (n.oldStart == nil || !o.set.contracted()):
		return []*node{n}, nil // the same order again
	}
	for _, m := range o.nodes {
		if m.draining && (m == n || o.set.contracted()) {
			return nil, conflict("lifecycle action already active for %s", m.id)
		}
	}
	if !slices.ContainsFunc(o.nodes, func(m *node) bool { return m != n && m.live() }) {
		return nil, conflict("no other engine is live")
	}
	o.take(n, "", limit)
	o.publish()
	o.lifecycleEvent(n, "drain_started")
	return []*node{n}, nil
}

// take holds an engine out of placement.
func (o *owner) take(n *node, wave string, limit float64) {
	now := o.now()
	old := n.oldStart
	if !n.draining {
		old = nil
	}
	o.unhold(n, endDrained)
	n.record = record{wave: wave, restart: o.set.contracted(), oldStart: old}
	n.requested, n.draining, n.state, n.fault, n.deadline = now, true, stateDraining, "", now+limit
}

// recordProcesses notes whose processes are to be replaced. In a contracted fleet an engine
// that does not tell is blocked: nobody could say later that it was restarted.
func (r *Router) recordProcesses(ctx context.Context, held []*node) *refusedOrder {
	starts := make([]float64, len(held))
	errs := make([]error, len(held))
	if r.set.contracted() {
		var wg sync.WaitGroup
		for i, n := range held {
			wg.Go(func() { starts[i], errs[i] = r.processStart(ctx, n) })
		}
		wg.Wait()
	}
	var no *refusedOrder
	r.own.do(func() {
		o := r.own
		for i, n := range held {
			switch {
			case n.oldStart != nil || !n.draining:
			case !o.set.contracted():
				if n.known {
					n.oldStart = ptr(n.facts.identity.ProcessStart)
					o.lifecycleEvent(n, "process_recorded")
				}
			case errs[i] == nil:
				n.oldStart, n.fault = ptr(starts[i]), ""
				if n.state == stateBlocked {
					n.state = stateDraining
				}
				o.lifecycleEvent(n, "process_recorded", eventField{"process_start", starts[i]})
			default:
				n.state, n.fault = stateBlocked, faultText(errs[i])
				o.lifecycleEvent(n, "drain_blocked")
				no = unavailable("%s: %v", n.id, errs[i])
			}
			o.settleDrain(n, o.now())
		}
		if lost := o.notInControl(); lost != nil {
			no = lost
		}
	})
	return no
}

// processStart reads when the process began that is to be replaced. Of an engine that is out already
// it is the one that served last: what answers now may have replaced it.
func (r *Router) processStart(ctx context.Context, n *node) (float64, error) {
	known, start := false, 0.0
	r.own.do(func() { known, start = n.known && n.ejected != "", n.facts.identity.ProcessStart })
	if known {
		return start, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.set.health)
	defer cancel()
	id, err := r.dialect.Identity(ctx, n.control)
	if err != nil {
		return 0, fmt.Errorf("read the process of the engine to be drained: %w", err)
	}
	return id.ProcessStart, nil
}

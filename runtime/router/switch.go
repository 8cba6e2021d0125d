package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Limits of a role switch inside an engine.
const (
	switchLimit = 60 * time.Second       // of the call
	switchIdle  = 10 * time.Second       // of "not idle" answers
	switchPause = 200 * time.Millisecond // between them
)

const causeSwitch = "role_switch"

// switchRole changes the role of a live process that has one. The engine is out of placement
// until it has answered; one that is left unfit is ejected.
func (r *Router) switchRole(n *node, m control.Move) {
	defer r.own.do(func() {
		n.switching = false
		r.own.publish()
	})
	s, ok := r.dialect.(engine.Switcher)
	if !ok {
		return
	}
	ctx, stop := context.WithTimeout(r.life, switchLimit)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer n.tie(cancel)()
	if !r.idle(ctx, n) {
		r.set.Logger.Warn("role not switched", "engine", n.id, "reason", "engine did not get idle")
		return
	}
	if m.To == model.Prefill {
		if err := r.refresh(ctx, s, n); err != nil {
			r.set.Logger.Warn("role not switched", "engine", n.id, "reason", err.Error())
			return
		}
	}
	switch err := engine.TakeRole(ctx, s, n.control, string(m.To), switchIdle); {
	case err == nil:
		r.own.do(func() {
			n.forget() // what a switch leaves of its cache is not known
			clear(n.keeps)
			r.own.unbarAll(n, unbarRole)
			r.own.relabel(n, m, r.own.now())
		})
	case errors.Is(err, engine.ErrKeepsRole):
		r.set.Logger.Warn("role not switched", "engine", n.id, "reason", err.Error())
	default:
		r.set.Logger.Error("role switch failed", "engine", n.id, "reason", err.Error())
		r.own.do(func() { r.own.eject(n, causeSwitch) })
	}
}

// idle waits until nothing of the router is on an engine, for at most three control steps.
func (r *Router) idle(ctx context.Context, n *node) bool {
	ctx, cancel := context.WithTimeout(ctx, max(switchIdle, 3*dur(r.set.Fleet.Controller.Reactive.StepS)))
	defer cancel()
	for {
		idle := false
		r.own.do(func() { idle = n.idle() })
		if idle {
			return true
		}
		if !pause.For(ctx, switchPause) {
			return false
		}
	}
}

// move carries out a decision: at once where a role is a label, else inside the engine.
func (o *owner) move(m control.Move, now float64) {
	n := o.node(m.Engine)
	if n == nil || n.pinned || n.switching {
		return
	}
	if o.set.switcher == nil {
		o.relabel(n, m, now)
		return
	}
	n.switching = true
	o.publish()
	o.set.switcher(n, m)
}

// roleOf reads the role that a live process has, "" where a role is only a label.
func (s *settings) roleOf(ctx context.Context, n *node) (model.Role, error) {
	w, ok := s.dialect.(engine.Switcher)
	if !ok {
		return "", nil
	}
	role, err := w.Role(ctx, n.control)
	return model.Role(role), err
}

// adopt takes the role that a live process has. A pinned engine must have its own already.
func (o *owner) adopt(n *node) error {
	role := n.facts.role
	switch {
	case role == "" || role == n.role:
	case role == model.Role(engine.RoleNone):
		o.aggregated = true
		o.publish()
	case n.pinned:
		return fmt.Errorf("engine %s is pinned to %s and its process serves as %s", n.id, n.role, role)
	default:
		n.role, n.roleSince = role, o.now()
		o.publish()
	}
	return nil
}

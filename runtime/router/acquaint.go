package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// errNoOther means that an engine is needed where it is.
var errNoOther = errors.New("no other decodes meanwhile")

// acquaint notes that d has met p. Where legs run at once, a decoding process keeps the address of each
// prefilling one that it met until it changes its own role: one that prefills again after it did
// something else is not found there.
func (o *owner) acquaint(p, d *node) {
	if !o.set.params.FixedRoles || p == d {
		return
	}
	if d.keeps == nil {
		d.keeps = map[*node]bool{}
	}
	d.keeps[p] = true
}

// cross is settings.cross between engines of the owner's.
func (r *Router) cross(ctx context.Context, p *node, f facts, d *node) crossing {
	r.own.do(func() { r.own.acquaint(p, d) })
	return r.set.cross(ctx, p, f, d)
}

// strange means that the process of an engine is a new one: it knows nobody, and is met anew.
func (o *owner) strange(n *node) {
	clear(n.keeps)
	for _, m := range o.nodes {
		delete(m.keeps, n)
	}
	o.unbarAll(n, unbarProcess)
}

// refresh has the decode engines that keep a former address of n forget it: each takes the other role for a
// moment, out of placement and idle, while another one decodes. An error leaves n where it is.
func (r *Router) refresh(ctx context.Context, s engine.Switcher, n *node) error {
	for {
		var d *node
		r.own.do(func() {
			if i := slices.IndexFunc(r.own.nodes, func(m *node) bool { return m.keeps[n] && m.ejected == "" }); i >= 0 {
				d = r.own.nodes[i]
			}
		})
		if d == nil {
			return nil
		}
		if err := r.renew(ctx, s, d, n); err != nil {
			return fmt.Errorf("engine %s keeps its former address: %w", d.id, err)
		}
	}
}

// renew has a decode engine forget the addresses that it keeps: it takes the other role for a moment, out of
// placement and idle, while one other than n decodes.
func (r *Router) renew(ctx context.Context, s engine.Switcher, d, n *node) error {
	var err error
	r.own.do(func() {
		alone := !slices.ContainsFunc(r.own.nodes, func(m *node) bool { return m != d && m != n && m.live() && m.role == model.Decode })
		if alone || d.switching {
			err = errNoOther
			return
		}
		d.switching = true
		r.own.publish()
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer d.tie(cancel)()
	err = r.turn(ctx, s, d)
	r.own.do(func() {
		d.switching = false
		if err == nil {
			clear(d.keeps)
		}
		r.own.publish()
	})
	return err
}

// turn has an idle decode engine prefill and decode again. One that stays between is ejected.
func (r *Router) turn(ctx context.Context, s engine.Switcher, d *node) error {
	if !r.idle(ctx, d) {
		return fmt.Errorf("%w: it did not get idle", engine.ErrKeepsRole)
	}
	for i, role := range []string{engine.RolePrefill, engine.RoleDecode} {
		if err := engine.TakeRole(ctx, s, d.control, role, switchIdle); err != nil {
			if i > 0 || !errors.Is(err, engine.ErrKeepsRole) {
				r.own.do(func() { r.own.eject(d, causeSwitch) })
			}
			return err
		}
	}
	return nil
}

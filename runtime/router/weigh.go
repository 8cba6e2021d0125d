package router

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// weigh blames the engine that a failed leg points at. A decoding engine that failed before
// its first token may have waited for KV that its producer no longer sends: the producer is
// asked first, and the engine that does not answer is the one that is struck. The client's
// retry does not wait for that.
func (r *Router) weigh(f *failure, l *claim) {
	if !inTransfer(f, l) {
		r.blame(f)
		return
	}
	first := false
	r.own.do(func() {
		first = len(l.p.accused) == 0
		l.p.accused = append(l.p.accused, f)
	})
	if first {
		r.background.Go(func() { r.hear(l.p) })
	}
}

// inTransfer reports whether a decode leg failed while its KV could still have been on its way.
func inTransfer(f *failure, l *claim) bool {
	return l != nil && l.p != l.d && f.source == l.p.id && f.engineID == l.d.id && l.tokens.Load() == 0 &&
		(f.class == classStream || f.class == classInference)
}

// hear asks a producer for its health and settles the failures that waited for the answer,
// until none is left.
func (r *Router) hear(p *node) {
	for more := true; more; {
		err, late := r.health(r.life, p)
		changed := err == nil && r.replaced(p)
		if r.life.Err() != nil {
			return
		}
		var list []*failure
		r.own.do(func() { list = p.accused })
		for _, f := range list {
			switch {
			case late, err == nil && !changed:
				r.blame(f)
			case err != nil:
				r.blame(engineFault(phasePrefill, p.id, model.ReasonUnreach, classConnection, err.Error(), true))
			}
		}
		r.own.do(func() {
			r.own.heard(p, err, late, changed)
			p.accused = p.accused[len(list):]
			more = len(p.accused) > 0
		})
	}
}

// heard draws the conclusions about a producer itself.
func (o *owner) heard(p *node, err error, late, changed bool) {
	switch {
	case changed:
		o.eject(p, causeIdentity)
		return
	case err == nil:
		o.absolve(p, classConnection, classTimeout, classOverload, classLiveness)
		return
	case late:
		return
	}
	o.n.probes[[3]string{p.id, probeHealth, outcomeFailed}]++
	o.event("engine_probe", o.now(), probeFields(p, probeHealth, outcomeFailed))
	if errors.Is(err, syscall.ECONNREFUSED) {
		o.eject(p, causeConnection)
	}
}

// health asks for /health within its limit. A failure that says more about this machine than
// about the engine is late.
func (r *Router) health(ctx context.Context, n *node) (err error, late bool) {
	ctx, cancel := context.WithTimeout(ctx, r.set.health)
	defer cancel()
	started := time.Now()
	err = r.dialect.Ready(ctx, n.control)
	return err, err != nil && (local(err) || time.Since(started) > r.set.health*3/2)
}

// replaced reports whether another process answers than the one that made the handoffs: the
// KV of the former is gone.
func (r *Router) replaced(n *node) bool {
	ctx, cancel := context.WithTimeout(r.life, r.set.health)
	defer cancel()
	id, err := r.dialect.Identity(ctx, n.control)
	if err != nil {
		return false
	}
	changed := false
	r.own.do(func() { changed = n.known && n.ejected == "" && !id.Same(n.facts.identity) })
	return changed
}

package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// candidate is an engine of a contracted fleet on its way back.
type candidate struct {
	n    *node
	role model.Role
	pin  bool
	old  *float64 // process start that must have changed; nil = any process may return
	f    facts
	err  error // of its own checks, in a wave
	// checked means that its own checks have passed.
	checked bool
	// note keeps a check that has passed.
	note func(name string)
}

// may reports whether an engine may serve in a role.
func (c *candidate) may(role model.Role) bool { return !c.pin || c.role == role }

func (o *owner) candidate(n *node) *candidate {
	c := &candidate{n: n, role: n.role, pin: n.pinned || o.set.dialect.Concurrent(), f: n.facts, note: func(string) {}}
	return c
}

// noting makes a candidate's checks part of its record.
func (r *Router) noting(c *candidate) *candidate {
	c.note = func(name string) { r.own.do(func() { c.n.checks = append(c.n.checks, name) }) }
	return c
}

// validate examines a candidate and moves KV between it and its peers, in the contract's
// order. peers are tried in their order; with the whole fleet they are of the same wave.
func (r *Router) validate(ctx context.Context, c *candidate, peers []*candidate) error {
	if err := r.checkProcess(ctx, c); err != nil {
		return err
	}
	return r.checkTransfers(ctx, c, peers)
}

// checkProcess are the checks of one engine by itself, up to its identity.
func (r *Router) checkProcess(ctx context.Context, c *candidate) error {
	if err := r.checkLive(ctx, c); err != nil {
		return err
	}
	if c.old == nil {
		c.note("process identity")
		return nil
	}
	if (engine.Identity{ProcessStart: *c.old}).Same(engine.Identity{ProcessStart: c.f.identity.ProcessStart}) {
		return errNotRestarted
	}
	c.note("new process identity")
	return nil
}

var errNotRestarted = errors.New("engine process did not restart after drain")

// checkLive are the checks that candidates and peers have in common.
func (r *Router) checkLive(ctx context.Context, c *candidate) error {
	s := &r.set
	if err := s.checkHealth(ctx, c.n); err != nil {
		return err
	}
	c.note("health")
	ctx, cancel := context.WithTimeout(ctx, 2*s.legLimit())
	defer cancel()
	id, err := s.dialect.Identity(ctx, c.n.control)
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if s.Attest == nil {
		return errors.New("attestation: no sidecar attests this fleet's engines")
	}
	if err := s.Attest(ctx, c.n.id, id); err != nil {
		return fmt.Errorf("attestation: %w", err)
	}
	c.note("attestation " + s.Fleet.EngineContract.Fingerprint())
	if err := s.verify(ctx, c.n.row, id); err != nil {
		return fmt.Errorf("profile generation: %w", &generationError{err})
	}
	c.note("profile generation")
	f, served, err := s.describe(ctx, c.n, id)
	if err != nil {
		return err
	}
	if !served {
		return fmt.Errorf("model: engine does not serve %q", s.Fleet.Model)
	}
	c.f = f
	if f.role != "" {
		c.role = f.role
	}
	c.note("model")
	return nil
}

func (s *settings) checkHealth(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, s.health)
	defer cancel()
	if err := s.dialect.Ready(ctx, n.control); err != nil {
		return fmt.Errorf("probe health: %w", err)
	}
	return nil
}

// checkTransfers lets an engine generate, hand over and take over.
func (r *Router) checkTransfers(ctx context.Context, c *candidate, peers []*candidate) error {
	s := &r.set
	if !s.dialect.Concurrent() {
		if err := s.alone(ctx, c.n, c.f); err != nil {
			return fmt.Errorf("generation: %w", err)
		}
		c.note("generation")
	}
	if len(r.own.nodes) == 1 {
		c.note("fabric not applicable: single-engine fleet")
	} else if err := r.checkFabric(ctx, c, peers); err != nil {
		return err
	}
	if err := s.checkHealth(ctx, c.n); err != nil {
		return fmt.Errorf("final health: %w", err)
	}
	c.note("final health")
	return r.unchanged(ctx, c)
}

// checkFabric moves KV in each direction that the engine may serve, with the first peer for
// which that goes well.
func (r *Router) checkFabric(ctx context.Context, c *candidate, peers []*candidate) error {
	for _, way := range []struct {
		as, peer model.Role
		name     string
	}{{model.Prefill, model.Decode, "fabric produce to "}, {model.Decode, model.Prefill, "fabric consume from "}} {
		if !c.may(way.as) {
			continue
		}
		last := fmt.Errorf("no other live engine may %s", way.peer)
		done := false
		for _, p := range peers {
			if p.n == c.n || p.err != nil || !p.may(way.peer) {
				continue
			}
			if last = r.transfer(ctx, c, p, way.as == model.Prefill); last == nil {
				c.note(way.name + p.n.id)
				done = true
				break
			}
			last = fmt.Errorf("%s: %w", p.n.id, last)
			if ctx.Err() != nil {
				break
			}
		}
		if !done {
			return fmt.Errorf("%s%w", way.name, last)
		}
	}
	return nil
}

// transfer moves one prompt's KV between a candidate and a peer; both must be the same
// processes before and after.
func (r *Router) transfer(ctx context.Context, c, peer *candidate, produces bool) error {
	if !peer.checked {
		if err := r.checkLive(ctx, peer); err != nil {
			return err
		}
		peer.checked = true
	}
	if err := differ(c.n.id, c.f, peer.n.id, peer.f); err != nil {
		return err
	}
	both := func() error { return errors.Join(r.unchanged(ctx, c), r.unchanged(ctx, peer)) }
	if err := both(); err != nil {
		return err
	}
	p, d := c, peer
	if !produces {
		p, d = peer, c
	}
	switch x := r.cross(ctx, p.n, p.f, d.n); {
	case x.produce != nil:
		return fmt.Errorf("prefill on %s: %w", p.n.id, x.produce)
	case x.consume != nil:
		return fmt.Errorf("decode on %s: %w", d.n.id, x.consume)
	}
	return both()
}

// unchanged reads an engine's identity again.
func (r *Router) unchanged(ctx context.Context, c *candidate) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.set.health, time.Second))
	defer cancel()
	id, err := r.dialect.Identity(ctx, c.n.control)
	switch {
	case err != nil:
		return fmt.Errorf("read identity of %s again: %w", c.n.id, err)
	case !id.Same(c.f.identity):
		return fmt.Errorf("the process of %s changed while it was validated", c.n.id)
	}
	return nil
}

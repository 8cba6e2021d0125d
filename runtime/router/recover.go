package router

import (
	"context"
	"errors"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// recoverContracted validates the ejected engines of a contracted fleet, each beside those
// that serve. When none serves, nobody is there to move KV with: then all that are well
// validate each other as one wave.
func (r *Router) recoverContracted(ctx context.Context, out []*node) {
	var all []*candidate
	none := false
	r.own.do(func() {
		o := r.own
		if o.wave != "" || o.required != "" || o.notInControl() != nil {
			return
		}
		for _, n := range out {
			if n.ejected != "" && !n.draining {
				all = append(all, o.candidate(n))
			}
		}
		none = !slices.ContainsFunc(o.nodes, (*node).live)
	})
	// A process that does not answer is asked again in the next round, without a word.
	all = slices.DeleteFunc(all, func(c *candidate) bool { return r.set.checkHealth(ctx, c.n) != nil })
	switch {
	case len(all) == 0:
	case none:
		r.recoverWave(ctx, all)
	default:
		for _, c := range all {
			r.recoverOne(ctx, c)
		}
	}
}

// startRecovery validates beside the sweeps, which must not wait for it; once at a time.
func (r *Router) startRecovery(ctx context.Context, out []*node) {
	if len(out) == 0 || !r.recovering.CompareAndSwap(false, true) {
		return
	}
	r.background.Go(func() {
		defer r.recovering.Store(false)
		r.recoverContracted(ctx, out)
	})
}

func (r *Router) recoverOne(ctx context.Context, c *candidate) {
	var peers []*candidate
	r.own.do(func() {
		c.n.checks, peers = nil, r.own.livePeers(c.n)
		r.own.recovering(c)
	})
	c.err = r.validate(ctx, r.noting(c), peers)
	if suspect, err := r.retestEjected(ctx, c.n, c.err); suspect {
		c.err = err
	}
	r.own.do(func() { r.own.endRecovery(c, ctx.Err() != nil) })
}

// recovering tells once that an engine is being validated, until its fault changes.
func (o *owner) recovering(c *candidate) {
	if c.n.fault == "" {
		o.lifecycleEvent(c.n, "recovery_validation_started")
	}
}

// endRecovery readmits a candidate or keeps why it stays out.
func (o *owner) endRecovery(c *candidate, stopped bool) {
	n := c.n
	if stopped || n.ejected == "" || n.draining || o.wave != "" || o.required != "" || o.notInControl() != nil {
		return
	}
	if c.err == nil {
		n.fault, n.newStart = "", ptr(c.f.identity.ProcessStart)
		o.readmit(n, c.f, "lifecycle")
		_ = o.adopt(n)
		return
	}
	if text := faultText(c.err); text != n.fault {
		n.fault = text
		action := "validation_failed"
		var gen *generationError
		if errors.As(c.err, &gen) {
			action = "profile_recovery_blocked"
			o.blameProfile(n)
		}
		o.lifecycleEvent(n, action)
		o.set.Logger.Warn("engine stays out", "engine", n.id, "error", text)
	}
}

// blameProfile makes a profile of another generation the reason of an ejection.
func (o *owner) blameProfile(n *node) {
	if n.ejected == causeGeneration {
		return
	}
	n.ejected = causeGeneration
	o.set.Logger.Warn("engine stays out", "engine", n.id, "cause", causeGeneration)
	o.n.ejections[[2]string{n.id, causeGeneration}]++
	o.event("engine_ejected", o.now(), map[string]any{"iid": n.id, "cause": causeGeneration})
}

// recoverWave validates a fleet of which nothing serves. Engines that fail stay out; the
// others return together, unless the only one left has nobody to move KV with.
func (r *Router) recoverWave(ctx context.Context, all []*candidate) {
	r.own.do(func() {
		o := r.own
		o.recovery = requestID()
		o.publish()
		for _, c := range all {
			c.n.checks = nil
			o.recovering(r.noting(c))
		}
	})
	r.validateAll(ctx, all)
	r.own.do(func() {
		o := r.own
		o.recovery = ""
		var back []string
		for _, c := range all {
			o.endRecovery(c, ctx.Err() != nil)
			if c.n.ejected == "" {
				back = append(back, c.n.id)
			}
		}
		if len(back) > 0 {
			o.lifecycleEvent(nil, "wave_readmitted", eventField{"engines", back})
		}
		o.publish()
	})
}

// proveProcess ejects an engine whose process has changed, and in a contracted fleet one that
// cannot be verified in as many sweeps as liveness may miss. st is what the engine just said of
// itself, nil when it said nothing.
func (r *Router) proveProcess(ctx context.Context, n *node, st *engine.State) {
	if !r.set.contracted() {
		r.proveStart(n, st)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.set.legLimit())
	defer cancel()
	id, err := r.dialect.Identity(ctx, n.control)
	if err == nil && r.set.Attest != nil {
		err = r.set.Attest(ctx, n.id, id)
	}
	if r.life.Err() != nil {
		return
	}
	r.own.do(func() {
		switch {
		case n.ejected != "" || n.draining || !n.known:
		case err == nil && id.Same(n.facts.identity):
			n.unproven = 0
		case err == nil:
			r.own.exclude(n, n.facts.identity.ProcessStart, id, "process changed")
		default:
			if n.unproven++; n.unproven >= max(1, r.set.Fleet.Recovery.LivenessMisses) {
				n.unproven = 0
				r.own.exclude(n, n.facts.identity.ProcessStart, id, err.Error())
			}
		}
	})
}

// proveStart asks an engine of a fleet without a contract who it is, unless its metrics have just
// told the known start, so that a restart is noticed before a request meets it. Of one that an
// order holds a restart is expected.
func (r *Router) proveStart(n *node, st *engine.State) {
	told := st != nil && st.ProcessStart > 0
	same := false
	r.own.do(func() {
		known := n.facts.identity
		same = n.draining || told && n.known && known.Same(engine.Identity{Version: known.Version, ProcessStart: st.ProcessStart})
	})
	if !same && r.replaced(n) {
		r.own.do(func() { r.own.eject(n, causeIdentity) })
	}
}

// exclude ejects an engine whose process is not the one that was told.
func (o *owner) exclude(n *node, old float64, id engine.Identity, why string) {
	more := []eventField{{"reason", engine.Printable(why, 200)}, {"previous_process_start", old}}
	if id.ProcessStart > 0 {
		more = append(more, eventField{"observed_process_start", id.ProcessStart})
	}
	o.lifecycleEvent(n, "process_excluded", more...)
	o.eject(n, causeIdentity)
}

// expect ejects an engine whose process is another one than the former router served with.
func (o *owner) expect(n *node) {
	if n.expected != nil && o.set.contracted() && !n.facts.identity.Same(engine.Identity{Version: n.facts.identity.Version, ProcessStart: *n.expected}) {
		o.exclude(n, *n.expected, n.facts.identity, "process changed before the takeover")
	}
	n.expected = nil
}

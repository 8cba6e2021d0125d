package router

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Ejection causes and probe words of the contract.
const (
	causeConnection = "connection"
	causeLiveness   = "liveness"
	causeHealth     = "health_probe"
	causeInference  = "inference_probe"
	causeIdentity   = "process_identity"
	causeGeneration = "profile_generation"
	causeDrift      = "drift"

	probeHealth    = "verify_health"
	probeInference = "verify_inference"
)

// blame counts a failed leg against its engine. At the threshold a refused connection
// ejects at once; anything else asks the engine itself first.
func (r *Router) blame(f *failure) {
	if f == nil || f.class == classNone || f.engineID == "" {
		return
	}
	verify := ""
	r.own.do(func() {
		n := r.own.node(f.engineID)
		if n == nil || n.ejected != "" {
			return
		}
		n.streak[f.class]++
		if f.class == classStream {
			n.suspect(f.source)
		}
		if r.set.Fleet.Recovery.FailureQuarantineS > 0 {
			r.own.quarantine(n, holdTimed, f.source)
		}
		if f.gone && n.verifying == "" {
			// Nobody listens, or the process dropped its connections: ask at once.
			n.verifying, verify = probeHealth, probeHealth
		}
		if n.streak[f.class] < max(1, r.set.Fleet.Recovery.EjectAfter) {
			return
		}
		if f.class == classConnection {
			r.own.eject(n, causeConnection)
			return
		}
		if n.verifying == "" {
			verify = probeHealth
			if f.class == classInference || f.class == classHandoff || f.class == classStream {
				verify = probeInference
				r.own.quarantine(n, holdInference, f.source)
			}
			n.verifying = verify
		}
	})
	if verify != "" {
		r.background.Go(func() { r.interrogate(r.own.node(f.engineID), verify) })
	}
}

// absolve notes an answer that shows an engine to be well. what lists the classes it clears.
func (o *owner) absolve(n *node, what ...string) {
	for _, c := range what {
		delete(n.streak, c)
		if c == classStream && (n.hold == nil || n.hold.kind != holdInference) {
			clear(n.sources) // those of a held suspect stay until its probes have passed
		}
	}
	n.misses = 0
}

func (o *owner) eject(n *node, cause string) {
	if n.ejected != "" {
		return
	}
	o.unhold(n, endEjected)
	n.ejected, n.verifying = cause, ""
	n.forget()
	if cause != causeHealth && cause != causeInference && cause != causeDrift {
		n.incarnation = ""
		n.tether.end()
		n.data.Forget()
	}
	o.n.ejections[[2]string{n.id, cause}]++
	if o.set.wholeWave() && o.wave == "" && o.required == "" {
		o.required = cause
		o.lifecycleEvent(n, "restart_required", eventField{"reason", cause})
	}
	o.publish()
	o.set.Logger.Warn("engine ejected", "engine", n.id, "cause", cause)
	o.event("engine_ejected", o.now(), map[string]any{"iid": n.id, "cause": cause})
}

// accept makes the process that was examined the one that serves.
func (o *owner) accept(n *node, f facts) {
	if n.known && !n.facts.identity.Same(f.identity) {
		o.strange(n)
	}
	n.facts, n.known, n.counters, n.incarnation = f, true, nil, ""
	n.forget()
}

func (o *owner) readmit(n *node, f facts, evidence string) {
	n.ejected, n.misses, n.verifying = "", 0, ""
	clear(n.streak)
	clear(n.sources)
	o.accept(n, f)
	o.n.readmissions[[2]string{n.id, evidence}]++
	o.publish()
	o.set.Logger.Info("engine readmitted", "engine", n.id, "evidence", evidence)
	o.event("engine_readmitted", o.now(), map[string]any{"iid": n.id, "evidence": evidence})
}

// interrogate probes a suspect and ejects it when the probe fails.
func (r *Router) interrogate(n *node, kind string) {
	if kind == probeInference {
		r.verifyInference(n)
		return
	}
	ctx, cancel := context.WithTimeout(r.life, max(r.set.firstToken, r.set.health))
	defer cancel()
	err := r.dialect.Ready(ctx, n.control)
	if r.life.Err() != nil {
		return
	}
	r.own.do(func() {
		outcome := outcomePassed
		n.verifying = ""
		switch {
		case local(err):
			outcome = outcomeInconclusive // says nothing of the engine
		case errors.Is(err, syscall.ECONNREFUSED):
			outcome = outcomeFailed
			r.own.eject(n, causeConnection)
		case err != nil:
			outcome = outcomeFailed
			r.own.eject(n, causeHealth)
		default:
			r.own.absolve(n, classConnection, classTimeout, classOverload, classLiveness)
			if n.hold != nil && n.hold.kind == holdTimed {
				r.own.unhold(n, endHealth)
			}
		}
		r.own.n.probes[[3]string{n.id, kind, outcome}]++
		r.own.event("engine_probe", r.own.now(), probeFields(n, kind, outcome))
	})
}

// probe sweeps liveness and asks ejected engines whether they may return.
func (r *Router) probe(ctx context.Context, sweep, readmit bool) {
	var out, in []*node
	r.own.do(func() {
		for _, n := range r.own.nodes {
			if n.ejected != "" {
				out = append(out, n)
			} else {
				in = append(in, n)
			}
		}
	})
	var wg sync.WaitGroup
	if sweep {
		for _, n := range in {
			wg.Go(func() { r.liveness(ctx, n) })
		}
	}
	if readmit {
		r.retryBarred()
		for _, n := range r.suspects() {
			r.background.Go(func() { r.interrogate(n, probeInference) })
		}
		if r.set.contracted() {
			r.startRecovery(ctx, out)
			out = nil
		}
		for _, n := range out {
			wg.Go(func() { r.reconsider(ctx, n) })
		}
	}
	wg.Wait()
}

func (r *Router) liveness(ctx context.Context, n *node) {
	limited, cancel := context.WithTimeout(ctx, r.set.health)
	defer cancel()
	started := time.Now()
	err := r.dialect.Ready(limited, n.control)
	var st *engine.State
	if err == nil {
		st = r.scrape(limited, n)
	}
	if ctx.Err() != nil {
		return
	}
	// A probe that was noticed much later than its limit says more about this machine.
	late := err != nil && time.Since(started) > r.set.health*3/2 || local(err)
	alive := false
	r.own.do(func() {
		switch {
		case err == nil:
			r.own.absolve(n, classConnection, classTimeout, classOverload, classLiveness)
			r.own.watchEngine(n, st)
			alive = true
		case errors.Is(err, syscall.ECONNREFUSED):
			r.own.eject(n, causeConnection)
		case !late:
			n.misses++
			n.streak[classLiveness] = n.misses
			if n.misses >= max(1, r.set.Fleet.Recovery.LivenessMisses) {
				r.own.eject(n, causeLiveness)
			}
		}
	})
	if alive {
		r.proveProcess(ctx, n, st)
	}
}

// reconsider readmits an ejected engine when it is healthy, tells who it is, and its
// profile holds for what it is now.
func (r *Router) reconsider(ctx context.Context, n *node) {
	f, err := r.set.examine(ctx, n)
	if err == nil {
		err = r.stillSlow(ctx, n)
	}
	var gen *generationError
	evidence := "health"
	if suspect, bad := r.retestEjected(ctx, n, err); suspect {
		evidence, err = "verification", bad
	}
	r.own.do(func() {
		switch {
		case n.ejected == "":
		case errors.As(err, &gen):
			r.own.blameProfile(n)
		case err == nil:
			if err := r.own.agrees(n, f); err != nil {
				r.set.Logger.Warn("engine stays out", "engine", n.id, "error", err.Error())
				return
			}
			r.own.readmit(n, f, evidence)
			_ = r.own.adopt(n)
		}
	})
}

package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/narwhal-fleet/narwhal/runtime/drift"
)

// driftPerMinute is how many engines are ejected for drift within a minute: whatever makes
// more of them slow at once is hardly theirs.
const driftPerMinute = 1

func (s *settings) drift() drift.Params {
	h := s.Fleet.Recovery.Health
	return drift.Params{Window: h.WindowS, MinSamples: h.MinSamples, Band: h.DriftBand, Relative: h.RelativeBand,
		Probation: h.ProbationWindows, Evict: h.EvictWindows, Recovery: h.RecoveryWindows, PerMinute: driftPerMinute}
}

// watchDrift looks at what every engine made since the last look.
func (o *owner) watchDrift(now float64) {
	pass := drift.Pass{At: now}
	dt := now - o.passAt
	o.passAt = now
	for _, n := range o.nodes {
		pass.Engines = append(pass.Engines, drift.Sample{Engine: n.id, Residual: n.residual(dt), Prefills: n.prefilled || len(n.prefilling) > 0,
			Out: n.ejected != "", Covered: o.spare(n)})
		n.prefilled = false
	}
	for _, v := range o.drifted(pass) {
		n := o.node(v.Engine)
		if v.Kind != drift.Suspect || n.verifying != "" || o.set.checkPace == nil {
			continue
		}
		n.verifying = probeInference
		o.set.checkPace(n)
	}
}

// spare reports whether an engine may go for drift. Where engines restart only together, one
// that is slow is better than none.
func (o *owner) spare(n *node) bool { return o.covered(n) && !o.set.wholeWave() }

// drifted folds one event into what is known of drift and tells of probations.
func (o *owner) drifted(e drift.Event) (vs []drift.Verdict) {
	o.drifts, vs = drift.Step(o.drifts, e)
	for _, n := range o.nodes {
		n.probation = o.drifts.Of(n.id).Probation
	}
	for _, v := range vs {
		if v.Kind == drift.Probation || v.Kind == drift.Recovered {
			o.set.Logger.Warn("engine drifts", "engine", v.Engine, "verdict", string(v.Kind), "score", v.Score, "limit", v.Limit, "peers", v.Peers)
			o.event("engine_probation", o.now(), map[string]any{"iid": v.Engine, "on": v.Kind == drift.Probation, "score": v.Score, "limit": v.Limit, "peers": v.Peers})
		}
	}
	return vs
}

// residual is the token interval of the residents of dt seconds over the one that the curve
// predicts for them; 0 when nobody decoded all the time. Without a token in dt it is the longest
// silence. The first token of a request counts as its handoff, not as a token.
func (n *node) residual(dt float64) float64 {
	var span, made, quiet float64
	requests, kv := 0, 0
	for l := range n.decoding {
		tokens, before := l.tokens.Load(), l.watched
		l.watched = tokens
		if tokens == 0 {
			continue
		}
		requests++
		kv += l.input + int(tokens)
		if before == 0 {
			continue
		}
		if l.quiet += dt; tokens > before {
			l.quiet = 0
		}
		span += dt
		made += float64(tokens - before)
		quiet = max(quiet, l.quiet)
	}
	predicted := n.curve.Interval(requests, kv)
	switch {
	case span == 0 || predicted <= 0:
		return 0
	case made == 0:
		return quiet / predicted
	}
	return span / made / predicted
}

// checkPace probes an engine that is suspected of drift.
func (r *Router) checkPace(n *node) {
	p, err := r.compare(r.life, n)
	if r.life.Err() == nil {
		r.own.do(func() { r.own.paced(n, p, err) })
	}
}

// compare probes an engine and, in the same moment, another one of its role.
func (r *Router) compare(ctx context.Context, n *node) (p drift.Probe, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.set.firstToken, r.set.health))
	defer cancel()
	var beside *node
	if !r.dialect.Concurrent() {
		r.own.do(func() { beside = r.own.besides(n) })
	}
	var wg sync.WaitGroup
	if beside != nil {
		wg.Go(func() { p.Peer, _ = r.pace(ctx, beside) })
	}
	p.Residual, err = r.pace(ctx, n)
	wg.Wait()
	p.Engine, p.At, p.Failed = n.id, r.own.now(), err != nil
	return p, err
}

// besides is the live engine of the same role that decodes for fewest; nil = there is none.
func (o *owner) besides(n *node) (least *node) {
	for _, m := range o.nodes {
		if m != n && m.live() && m.role == n.role && (least == nil || len(m.decoding) < len(least.decoding)) {
			least = m
		}
	}
	return least
}

// paced judges a probe of pace.
func (o *owner) paced(n *node, p drift.Probe, err error) {
	n.verifying = ""
	if n.ejected != "" {
		return
	}
	outcome, eject := outcomeInconclusive, ""
	switch {
	case local(err): // says nothing of the engine
	case errors.Is(err, syscall.ECONNREFUSED):
		outcome, eject = outcomeFailed, causeConnection
	default:
		p.Covered = o.spare(n)
		for _, v := range o.drifted(p) {
			outcome = outcomeFailed
			switch v.Kind {
			case drift.Passed:
				outcome = outcomePassed
			case drift.Eject:
				eject = causeDrift
			}
		}
	}
	o.n.probes[[3]string{n.id, probeInference, outcome}]++
	o.event("engine_probe", o.now(), probeFields(n, probeInference, outcome))
	if eject != "" {
		o.eject(n, eject)
	}
}

// stillSlow keeps an engine out that was ejected for drift and makes tokens no faster, as long
// as the others do without it.
func (r *Router) stillSlow(ctx context.Context, n *node) error {
	judge := false
	r.own.do(func() { judge = n.ejected == causeDrift && r.own.spare(n) })
	if !judge {
		return nil
	}
	p, err := r.compare(ctx, n)
	if err != nil {
		return err
	}
	r.own.do(func() {
		if r.own.drifts.Slow(p) {
			err = fmt.Errorf("probe pace: a token takes %.2f times what its profile says", p.Residual)
		}
	})
	return err
}

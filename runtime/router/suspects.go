package router

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Outcomes of a probe, as the contract names them.
const (
	outcomePassed       = "passed"
	outcomeFailed       = "failed"
	outcomeInconclusive = "inconclusive"
	outcomeProducer     = "producer_failed"
	outcomeConsumer     = "consumer_failed"
	outcomeUnavailable  = "unavailable"
	outcomePair         = "pair_failed"
)

// path is one way on which a suspect is asked for a token again. With neither peer it
// answers alone.
type path struct {
	recorded string // producer that the suspect failed with; "" = none
	producer *node
	consumer *node // of a suspect that prefills
	facts    facts // of who prefills
	missing  string
}

// verdict is what one path has shown.
type verdict struct {
	path
	outcome string
	err     error
	legs    crossing
}

// suspect notes with whose KV an engine failed; "" = with nobody's.
func (n *node) suspect(source string) {
	if n.sources == nil {
		n.sources = map[string]bool{}
	}
	n.sources[source] = true
}

// paths are the ways that have to be tried again, each once. A recorded producer that has
// gone is replaced by the least loaded other one, and without any the suspect is asked alone.
func (o *owner) paths(n *node) (list []path) {
	recorded := slices.Sorted(maps.Keys(n.sources))
	if len(recorded) == 0 {
		recorded = []string{""}
	}
	type ends struct{ p, d *node }
	seen := map[ends]bool{}
	for _, name := range recorded {
		x := o.path(n, name)
		if e := (ends{x.producer, x.consumer}); !seen[e] {
			seen[e] = true
			list = append(list, x)
		}
	}
	return list
}

func (o *owner) path(n *node, recorded string) path {
	other := func(m *node) bool { return m != n }
	x := path{recorded: recorded, facts: n.facts}
	paired := o.set.dialect.Concurrent() && !o.aggregated
	if n.role == model.Prefill && (paired || !o.set.dialect.Concurrent() && recorded == "") {
		if x.consumer = o.idlest(model.Decode, other); x.consumer == nil && paired {
			x.missing = "no_consumer"
		}
		return x
	}
	if recorded != "" || paired {
		if x.producer = o.node(recorded); x.producer == nil || x.producer == n || !x.producer.live() {
			x.producer = o.idlest(model.Prefill, other)
		}
		if x.producer != nil {
			x.facts = x.producer.facts
		} else if paired {
			x.missing = "no_producer"
		}
	}
	return x
}

// idlest is the live engine of a role with the fewest requests among those that may; nil for none.
func (o *owner) idlest(role model.Role, may func(*node) bool) *node {
	var best *node
	load := func(m *node) int { return len(m.prefilling) + len(m.pending) + len(m.decoding) }
	for _, m := range o.nodes {
		if m.live() && m.role == role && may(m) && (best == nil || load(m) < load(best)) {
			best = m
		}
	}
	return best
}

// try asks a suspect for a token on one path.
func (r *Router) try(ctx context.Context, n *node, x path) verdict {
	v := verdict{path: x, outcome: outcomePassed}
	s := &r.set
	switch {
	case x.missing != "":
		v.outcome = outcomeUnavailable
		return v
	case x.producer != nil:
		v.legs = r.cross(ctx, x.producer, x.facts, n)
		v.err = v.legs.consume
		if v.legs.produce != nil { // says nothing about the suspect
			v.outcome, v.err = outcomeProducer, v.legs.produce
			return v
		}
	case x.consumer != nil:
		v.legs = r.cross(ctx, n, x.facts, x.consumer)
		v.err = v.legs.produce
		if v.err == nil && v.legs.consume != nil && s.dialect.Concurrent() {
			v.outcome, v.err = outcomeConsumer, v.legs.consume
			return v
		}
	}
	if v.err == nil && x.producer == nil && (x.consumer == nil || !s.dialect.Concurrent()) {
		v.err = s.alone(ctx, n, x.facts)
	}
	switch {
	case local(v.err):
		v.outcome = outcomeInconclusive
	case v.err != nil:
		v.outcome = outcomeFailed
	}
	return v
}

// retest tries every path of a suspect again, tells of each, and returns the word for all:
// failed if one has, passed if all have or only the pair fails, else what is still open.
func (r *Router) retest(ctx context.Context, n *node) (outcome string, err error) {
	var list []path
	r.own.do(func() { list = r.own.paths(n) })
	outcome = outcomePassed
	for _, x := range list {
		v := r.try(ctx, n, x)
		if r.life.Err() != nil || ctx.Err() != nil {
			return outcomeInconclusive, context.Cause(ctx)
		}
		if r.onlyEdge(ctx, n, v) {
			v.outcome = outcomePair
		}
		r.own.do(func() {
			r.own.n.probes[[3]string{n.id, probeInference, v.outcome}]++
			r.own.event("engine_probe", r.own.now(), v.fields(n))
			if v.outcome == outcomePair {
				r.own.bar(edge{v.producer, n}, v.legs)
			}
		})
		switch {
		case v.outcome == outcomeFailed:
			return v.outcome, v.err
		case v.outcome != outcomePassed && v.outcome != outcomePair:
			outcome, err = v.outcome, v.err
		}
		r.blameWitness(v)
	}
	return outcome, err
}

// onlyEdge reports whether a suspect fails with one producer and is well with another one.
func (r *Router) onlyEdge(ctx context.Context, n *node, v verdict) bool {
	return v.producer != nil && v.legs.edge(r.set.dialect.Concurrent()) && r.elsewhere(ctx, edge{v.producer, n})
}

// blameWitness counts a failed leg of a probe against the peer that failed it.
func (r *Router) blameWitness(v verdict) {
	peer := v.producer
	if v.outcome == outcomeConsumer {
		peer = v.consumer
	}
	if peer == nil || v.outcome != outcomeProducer && v.outcome != outcomeConsumer {
		return
	}
	f := engineFault(phasePrefill, peer.id, model.ReasonEngine, probeClass(v.err), v.err.Error(), true)
	f.gone = f.class == classConnection
	r.blame(f)
}

// verifyInference asks a suspect for tokens and ends the suspicion or ejects it. What is
// neither stays as it is until the next round.
func (r *Router) verifyInference(n *node) {
	outcome, err := r.retest(r.life, n)
	if r.life.Err() != nil {
		return
	}
	r.own.do(func() {
		o := r.own
		n.verifying = ""
		switch {
		case outcome == outcomePassed:
			o.unhold(n, endVerification)
			o.absolve(n, classes...)
		case outcome == outcomeFailed && errors.Is(err, syscall.ECONNREFUSED):
			o.eject(n, causeConnection)
		case outcome == outcomeFailed:
			o.eject(n, causeInference)
		}
	})
}

// suspects are the held engines whose suspicion is open and that nobody asks now.
func (r *Router) suspects() (list []*node) {
	r.own.do(func() {
		for _, n := range r.own.nodes {
			if n.ejected == "" && n.hold != nil && n.hold.kind == holdInference && n.verifying == "" {
				n.verifying = probeInference
				list = append(list, n)
			}
		}
	})
	return list
}

// retestEjected tries an ejected suspect again that is well otherwise.
func (r *Router) retestEjected(ctx context.Context, n *node, examined error) (suspect bool, err error) {
	mute := false
	r.own.do(func() { suspect, mute = n.ejected != "" && len(n.sources) > 0, n.ejected != "" && r.own.mute(n) })
	switch {
	case examined != nil || !suspect && !mute:
		return false, nil
	case mute:
		return true, errMute
	}
	outcome, err := r.retest(ctx, n)
	if err == nil && outcome != outcomePassed {
		err = errors.New("inference probe: " + outcome)
	}
	return true, err
}

// probeClass is the breaker's class of a failed leg of a probe; "" for none.
func probeClass(err error) string {
	var status *engine.StatusError
	var bad *engine.HandoffError
	switch {
	case err == nil || local(err):
		return classNone
	case errors.As(err, &status):
		return fromStatus(phasePrefill, "", status).class
	case errors.Is(err, engine.ErrNoHandoff), errors.As(err, &bad):
		return classHandoff
	case errors.Is(err, syscall.ECONNREFUSED):
		return classConnection
	case errors.Is(err, errProbeStream):
		return classStream
	}
	return classTimeout
}

// fields are the probe's event.
func (v verdict) fields(n *node) map[string]any {
	f := map[string]any{"iid": n.id, "kind": probeInference, "outcome": v.outcome, "producer": nil, "recorded_producer": nil}
	if v.recorded != "" {
		f["recorded_producer"] = v.recorded
	}
	if v.producer != nil {
		f["producer"] = v.producer.id
	}
	if v.consumer != nil {
		f["consumer"] = v.consumer.id
	}
	if v.missing != "" {
		f["reason"] = v.missing
	}
	for key, err := range map[string]error{"prefill_class": v.legs.produce, "decode_class": v.legs.consume} {
		if c := probeClass(err); c != classNone {
			f[key] = c
		}
	}
	switch c := probeClass(v.err); {
	case c == classNone:
	case v.outcome == outcomeProducer:
		f["producer_class"] = c
	case v.outcome == outcomeConsumer:
		f["consumer_class"] = c
	}
	return f
}

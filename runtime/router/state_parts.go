package router

import (
	"cmp"
	"maps"
	"slices"
)

func (o *owner) controlState() object {
	flips, decisions := object{}, object{}
	for k, v := range o.moves {
		flips[k] = v
	}
	for k, v := range o.decisions {
		decisions[k] = v
	}
	return object{"advisory": o.set.control.Advisory, "last_decision": o.lastDecision(), "decisions": decisions, "flips": flips, "flip_reversals": o.n.reversals,
		"flips_refused": o.n.flipsRefused, "flip_inflight": phases[int]{"prefill": o.n.flipPrefill, "decode": o.n.flipDecode}}
}

// stageStates is an object with a member for each monitoring stage, in order.
type stageStates map[string]stageView

// MarshalJSON writes all stages, also those that never failed.
func (s stageStates) MarshalJSON() ([]byte, error) {
	return members(stages, func(k string) any {
		v := s[k]
		return object{"failures": v.failures, "consecutive": v.consecutive, "last_class": v.lastClass, "last_at": v.lastAt}
	})
}

func (o *owner) monitoringState(seen seen) object {
	m := o.monitoring()
	return object{"degraded": m.degraded, "reason": m.reason, "core_consecutive": m.consecutive, "core_failures": m.failures,
		"event_loop_lag_s": seen.lag, "event_loop_lag_high_water_s": seen.lagHigh, "event_loop_busy_s": seen.busy, "stages": stageStates(maps.Clone(m.stages))}
}

func (o *owner) admissionState(seen seen) object {
	auth := "boundary"
	if !o.set.key.Empty() {
		auth = "engine-credential"
	}
	w := o.waiting()
	return object{"inflight": o.n.inflight, "queued": w.queued, "queue_capacity": w.capacity, "queue_high_water": w.highWater,
		"waiting_prefill": w.prefill, "waiting_decode": w.decode, "limit": o.set.limit, "loop_lag_s": seen.lag, "sizing_delay_s": seen.sizing,
		"saturation_threshold_s": o.saturation(), "rejected": sum(o.n.rejected), "refused": sum(o.n.refused), "engine_auth": auth,
		"mode": o.mode(), "margin": o.set.params.Margin}
}

func (o *owner) servingState() object {
	n := &o.n
	failures := []object{}
	for _, k := range sortedKeys(n.attemptFailures) {
		failures = append(failures, object{"phase": k[0], "reason": k[1], "count": n.attemptFailures[k]})
	}
	return object{"http_retained": n.retained, "http_retained_limit": o.set.most(), "http_retained_high_water": n.retainedHigh,
		"prefill_attempts": n.prefillAttempts, "decode_attempts": n.decodeAttempts, "retry_attempts": n.retryAttempts,
		"retry_credits": o.budget.least(o.now()), "retry_credits_spent": n.creditsSpent, "retry_denied": n.retryDenied, "served_after_retry": n.servedAfterRetry,
		"attempt_failures": failures, "decode_tokens_observed": n.tokens,
		"upstream_seconds": phases[float64]{"prefill": n.prefillSeconds, "decode": n.decodeSeconds}}
}

func (o *owner) breakerState() object {
	failures, verifying := object{}, []object{}
	for _, n := range o.nodes {
		m := object{}
		for _, c := range classes {
			m[c] = n.streak[c]
		}
		failures[n.id] = m
		if n.verifying != "" {
			verifying = append(verifying, object{"iid": n.id, "kind": n.verifying})
		}
	}
	doc := object{"failures": failures, "verifying": verifying,
		"ejections": pairs(o.n.ejections, "cause"), "hold_starts": pairs(o.n.holdStarts, "kind"), "hold_ends": triples(o.n.holdEnds, "kind", "cause"),
		"probes": triples(o.n.probes, "kind", "outcome"), "readmissions": pairs(o.n.readmissions, "evidence")}
	if list := o.barredState(); len(list) > 0 {
		doc["barred_pairs"] = list
	}
	return doc
}

// pairs lists counts by engine and one more word.
func pairs(m map[[2]string]int, word string) []object {
	out := []object{}
	for _, k := range sortedKeys(m) {
		out = append(out, object{"iid": k[0], word: k[1], "count": m[k]})
	}
	return out
}

// triples lists counts by engine and two more words.
func triples(m map[[3]string]int, first, second string) []object {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2]))
	})
	out := []object{}
	for _, k := range keys {
		out = append(out, object{"iid": k[0], first: k[1], second: k[2], "count": m[k]})
	}
	return out
}

// evidenceState fills what the controller's and the attainment's histories hold.
func (o *owner) evidenceState(s *state) {
	now, r := o.now(), o.set.Fleet.Controller.Reactive
	v := o.n.outcomes.look(now)
	s.Attainment = object{"bucket_s": cellWidth, "retained_s": o.n.outcomes.keep, "covered_s": v.covered, "buckets": v.cells, "outcomes": v.seen,
		"pruned_buckets": v.prunedCells, "pruned_outcomes": v.pruned}
	s.DemandHistory = object{}
	for _, w := range o.n.demand() {
		v := w.look(now)
		s.DemandHistory[w.name] = object{"bucket_s": cellWidth, "retained_s": w.keep, "cell_limit": v.limit, "cells": v.cells,
			"observations": v.seen, "overflow_observations": 0}
	}
	pending := max(0, o.n.offered-o.n.inputCount-o.n.unsized)
	if unsized, ok := s.DemandHistory["unsized"].(object); ok {
		unsized["pending"] = pending
	}
	e := o.evidence(now)
	d := object{"span_s": e.span, "arrivals": e.arrivals, "required_span_s": r.EvidenceSpanS, "required_arrivals": r.EvidenceMinArrivals,
		"max_span_s": r.EvidenceMaxSpanS, "closed": e.closed, "risk_kind": nil, "risk_age_s": nil,
		"risk_events": object{"first_token_timeout": 0, riskRecovery: e.recoveries}, "short_decode_engines": nil, "long_decode_engines": nil,
		"trend_ratio": nil, "envelope_decode_engines": nil, "blocked_gate": e.gate}
	if e.risk != "" {
		d["risk_kind"], d["risk_age_s"] = e.risk, e.riskAge
	}
	if o.last != nil {
		d["short_decode_engines"], d["long_decode_engines"] = o.last.DecodeWork, o.last.SteadyDecode
		d["envelope_decode_engines"] = max(o.last.DecodeWork, o.last.SteadyDecode)
	}
	if e.trend > 0 {
		d["trend_ratio"] = e.trend
	}
	s.DemandEvidence = d
}

func (o *owner) haState() object {
	p := o.view.Load()
	epoch, holder := p.term()
	return object{"ready": p.reason() == "", "standby": p.waits, "epoch": epoch, "holder": holder, "blocked": p.fenced}
}

// routerState is this router's own part: how its journal and its process do.
func routerState(seen seen) object {
	return object{"journal": seen.journal, "runtime": object{"goroutines": seen.goroutines, "heap_bytes": seen.heap, "memory_bytes": seen.memory}}
}

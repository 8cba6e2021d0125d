package router

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// The views of this file are what state and metrics both show.

// waiting is the queue.
type waiting struct{ queued, capacity, highWater, prefill, decode int }

func (o *owner) waiting() waiting {
	return waiting{queued: len(o.queue.waiters), capacity: o.set.Fleet.Serving.QueueCapacity, highWater: o.queue.highWater}
}

// driftView is an engine's drift windows.
type driftView struct {
	scored, undersampled, pauses int
	paused, probation            bool
	lastScored                   *float64 // router clock
}

func (o *owner) drift(n *node) driftView {
	e := o.drifts.Of(n.id)
	v := driftView{scored: e.Scored, undersampled: e.Undersampled, pauses: e.Pauses, paused: e.Paused, probation: e.Probation}
	if e.ScoredAt > 0 {
		v.lastScored = ptr(e.ScoredAt)
	}
	return v
}

// held lists the kinds of an engine's holds.
func (o *owner) held(n *node) []string {
	if n.hold == nil {
		return nil
	}
	return []string{n.hold.kind}
}

// holdsState lists the engines that are held, by the kind of their hold.
func (o *owner) holdsState() object {
	now := o.now()
	timed, inference := []object{}, []object{}
	for _, n := range o.nodes {
		switch h := n.hold; {
		case h == nil:
		case h.kind == holdTimed:
			timed = append(timed, object{"iid": n.id, "held_s": now - h.since, "remaining_s": max(0, h.until-now)})
		default:
			inference = append(inference, object{"iid": n.id, "held_s": now - h.since, "recorded_producers": append([]string{}, slices.Sorted(maps.Keys(n.sources))...)})
		}
	}
	return object{"timed": timed, "inference": inference}
}

// stages are the monitoring's, in the contract's order.
var stages = []string{"controller", "health", "drains", "rollover", "readmission", "transfer_refresh", "liveness", "residency", "handoff", "telemetry"}

type stageView struct {
	failures, consecutive int
	lastClass             *string
	lastAt                *float64
}

// monitoring is the health of the monitoring passes.
type monitoring struct {
	degraded              bool
	reason                *string
	consecutive, failures int
	stages                map[string]stageView
}

func (o *owner) monitoring() monitoring {
	m := monitoring{degraded: o.degraded != "", consecutive: o.badPasses, stages: map[string]stageView{}}
	if stage, class := cutSpace(o.degraded); m.degraded {
		m.reason = ptr(class + ":" + stage)
	}
	for name, n := range o.n.stageFailures {
		m.failures += n
		m.stages[name] = stageView{failures: n, consecutive: o.n.stageRuns[name], lastClass: ptr("panic"), lastAt: o.n.stageAt[name]}
	}
	return m
}

// failedStage notes a failed pass by its first broken stage, or with "" a whole one.
func (o *owner) failedStage(name string) {
	if name == "" {
		clear(o.n.stageRuns)
		return
	}
	o.n.stageRuns[name]++
	o.n.stageAt[name] = ptr(o.now())
}

func cutSpace(s string) (before, after string) {
	before, after, _ = strings.Cut(s, " ")
	return before, after
}

// handoffBound is how long an engine keeps a handoff, in seconds.
type handoffBound struct{ lease, renewal, bound float64 }

// bound is told by the engine; ok is false without that. Its bound is the age up to which
// the dialect lets a handoff be used.
func (o *owner) bound(n *node) (b handoffBound, ok bool) {
	if n.facts.lease <= 0 {
		return b, false
	}
	age := (&engine.Handoff{}).Deadline(dur(n.facts.lease)).Sub(time.Time{})
	return handoffBound{n.facts.lease, math.Floor(n.facts.lease / 6), age.Seconds()}, true
}

func (o *owner) mode() string {
	if o.set.params.Open {
		return "open"
	}
	return "predictive"
}

// saturation is the contract's share of the first-token target.
func (o *owner) saturation() float64 { return 0.25 * o.set.params.TTFT }

func (o *owner) meanInput() (float64, bool) {
	if o.n.inputCount == 0 {
		return 0, false
	}
	return o.n.inputSum / float64(o.n.inputCount), true
}

// seats are how many requests an engine is given at once: prefills of the mean prompt that
// fit the first-token target, and the profile's decode limit; 0 = no limit. limit is the
// engine's own word, nil without an attestation.
func (o *owner) seats(n *node) (prefill, decode int, limit *int) {
	if mean, ok := o.meanInput(); ok && n.curve.Measured() {
		if own := n.curve.Prefill(max(1, int(mean))); own > 0 {
			prefill = max(1, int(o.set.params.TTFT/own))
		}
	}
	return prefill, n.curve.MaxRequests, nil
}

func (o *owner) belowFloorSeconds() float64 {
	if o.n.belowFloor {
		return o.n.belowFloorTotal + o.now() - o.n.belowFloorSince
	}
	return o.n.belowFloorTotal
}

// decodeModel is what one live decode engine holds on average, and may hold.
type decodeModel struct {
	engines                     int
	tokens, sloTokens, kvTokens float64
	requests, correction        float64
	covered                     bool
}

func (o *owner) decodeModel() (m decodeModel) {
	m.covered = true
	for _, n := range o.nodes {
		if n.role != model.Decode || !n.live() || !n.curve.Measured() {
			continue
		}
		v := n.viewAt(o.now())
		m.engines++
		m.tokens += float64(v.DecodeTokens)
		m.requests += float64(v.DecodeRequests)
		m.correction += v.Kappa()
		m.covered = m.covered && n.curve.Covers(v.DecodeRequests, v.DecodeTokens)
		kv := float64(n.curve.TokenLimit())
		if m.kvTokens == 0 || kv < m.kvTokens {
			m.kvTokens = kv
		}
		mean := max(1, float64(v.DecodeTokens)/max(1, float64(v.DecodeRequests)))
		g, _ := n.curve.Batch(mean, o.set.params.TPOT/v.Kappa())
		m.sloTokens += float64(g) * mean
	}
	if m.engines > 0 {
		c := float64(m.engines)
		m.tokens, m.sloTokens, m.requests, m.correction = m.tokens/c, m.sloTokens/c, m.requests/c, m.correction/c
	}
	return m
}

// riskRecovery is a move from prefill to decode.
const riskRecovery = "p_to_d_recovery"

// evidence is the history that a move from decode to prefill rests on.
type evidence struct {
	span, riskAge, trend float64
	arrivals, recoveries int
	closed               bool
	risk, gate           string
}

func (o *owner) evidence(now float64) (e evidence) {
	r := o.set.Fleet.Controller.Reactive
	from := 0.0
	for _, f := range o.flips {
		if f.To == string(model.Decode) {
			e.risk, from = riskRecovery, f.At
		}
	}
	e.recoveries = o.moves["reactive:decode"] + o.moves["decode_floor:decode"]
	if e.risk != "" {
		e.riskAge = now - from
	}
	e.span = max(0, now-from)
	if r.EvidenceMaxSpanS > 0 {
		e.span = min(e.span, r.EvidenceMaxSpanS)
	}
	for cell, n := range o.n.arrivals.cells {
		if float64(cell+1)*cellWidth > now-e.span {
			e.arrivals += n
		}
	}
	e.closed = e.span >= r.EvidenceSpanS && e.arrivals >= r.EvidenceMinArrivals
	if o.last != nil && o.last.SteadyDecode > 0 && !math.IsInf(float64(o.last.DecodeWork), 0) {
		e.trend = float64(o.last.DecodeWork / o.last.SteadyDecode)
	}
	e.gate = "none"
	if !e.closed {
		e.gate = "evidence"
		if e.risk != "" {
			e.gate = "risk"
		}
	}
	return e
}

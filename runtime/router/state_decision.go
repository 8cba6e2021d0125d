package router

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/control"
)

// decisionKeys are the contract's members of a decision, in its order.
var decisionKeys = strings.Fields(`at prefill decode by reason result applied current_prefill current_decode prefill_work decode_work
	projected_ttft_ratio projected_tpot_ratio projected_decode_wait_ratio objective objective_delta
	decode_tokens_per_engine decode_slo_capacity_tokens decode_kv_capacity_tokens decode_request_limit decode_requests_per_engine
	pending_decode_requests pending_decode_tokens decode_profile_covered decode_correction
	arrivals output_observations demand_complete arrivals_beyond_profile unsized_offers decision_basis
	observed_prefill_ratio recovery_prefill_ratio observed_decode_ratio recovery_decode_ratio
	eligibility_rule demand_horizon_s steady_horizon_s steady_prefill_work steady_decode_work steady_demand_s
	departure_age_s departure_reverses confirmations required_confirmations
	trigger_rid projected_ttft_s ttft_slo_s trigger_projected_ttft_ratio resident_prefill_s queued_prefill_s waiting_prefill
	initial_projected_ttft_s urgent_signals event_to_evaluation_s candidate_projected_ttft_s candidate_projected_ttft_ratio
	projected_ttft_improvement_s decode_capacity_safe role_floors_safe source_pressure_safe
	evidence_span_s evidence_arrivals evidence_required_span_s evidence_required_arrivals evidence_max_span_s evidence_closed
	risk_kind risk_age_s evidence_short_decode_engines evidence_long_decode_engines evidence_trend_ratio
	evidence_envelope_decode_engines evidence_blocked_gate`)

// decisionDoc is a decision with all of the contract's members, null where this controller
// has no such term, then its own.
type decisionDoc map[string]any

// MarshalJSON writes the contract's members first.
func (d decisionDoc) MarshalJSON() ([]byte, error) {
	keys := slices.Clone(decisionKeys)
	for _, k := range slices.Sorted(maps.Keys(d)) {
		if !slices.Contains(decisionKeys, k) {
			keys = append(keys, k)
		}
	}
	return members(keys, func(k string) any { return d[k] })
}

// noteDecision keeps what the owner knew when the controller decided.
func (o *owner) noteDecision(now float64) {
	loads, queued := o.loads(), 0.0
	for _, n := range o.nodes {
		queued += max(0, n.prefillFree-now)
	}
	e := o.evidence(now)
	m := map[string]any{"observed_prefill_ratio": loads[phasePrefill], "recovery_prefill_ratio": loads[phasePrefill],
		"observed_decode_ratio": loads[phaseDecode], "recovery_decode_ratio": loads[phaseDecode], "queued_prefill_s": queued,
		"arrivals_beyond_profile": 0, "unsized_offers": o.n.unsizedOffers.look(now).seen, "ttft_slo_s": o.set.params.TTFT,
		"evidence_span_s": e.span, "evidence_arrivals": e.arrivals, "evidence_closed": e.closed, "evidence_blocked_gate": e.gate}
	if d := o.decodeModel(); d.engines > 0 {
		m["decode_tokens_per_engine"], m["decode_slo_capacity_tokens"], m["decode_kv_capacity_tokens"] = d.tokens, d.sloTokens, d.kvTokens
		m["decode_requests_per_engine"], m["decode_correction"], m["decode_profile_covered"] = d.requests, d.correction, d.covered
	}
	o.n.known = m
}

// decisionFields is a decision's event: what the controller decided by, and what the owner
// knew beside it.
func (o *owner) decisionFields(d control.Decision) map[string]any {
	out := maps.Clone(o.n.known)
	if out == nil {
		out = map[string]any{}
	}
	b, err := json.Marshal(d)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return out
	}
	delete(out, "at")
	return out
}

// lastDecision is null before the first one.
func (o *owner) lastDecision() any {
	if o.last == nil {
		return nil
	}
	out := decisionDoc(o.decisionFields(*o.last))
	out["at"] = o.last.At
	return out
}

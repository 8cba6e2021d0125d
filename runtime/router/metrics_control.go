package router

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/control"
)

func (o *owner) controlSeries(s *series) {
	for _, k := range [][2]string{{control.ByDecodeFloor, "decode"}, {control.ByFloorRecovery, "prefill"}, {control.ByReactive, "decode"}, {control.ByReactive, "prefill"}} {
		s.count("flips_total", o.moves[k[0]+":"+k[1]], k[1], k[0])
	}
	s.count("flip_reversals_total", o.n.reversals)
	s.count("flips_refused_total", o.n.flipsRefused)
	s.count("flip_inflight_total", o.n.flipPrefill, phasePrefill)
	s.count("flip_inflight_total", o.n.flipDecode, phaseDecode)
	s.flag("controller_advisory", o.set.control.Advisory)
	for k, v := range o.decisions {
		by, result := cut(k)
		s.count("controller_decisions_total", v, by, result)
	}
	d := o.last
	if d == nil {
		return
	}
	s.count("controller_proposed_engines", d.Prefill, phasePrefill)
	s.count("controller_proposed_engines", d.Decode, phaseDecode)
	rule := d.Rule
	if rule == "" {
		rule = "none"
	}
	s.put("controller_last_decision", 1, d.By, d.Reason, d.Result, rule)
	s.finite("controller_projected_slo_ratio", d.TTFTRatio, phasePrefill)
	s.finite("controller_projected_slo_ratio", d.TPOTRatio, phaseDecode)
	s.finite("controller_phase_work_engines", d.PrefillWork, phasePrefill)
	s.finite("controller_phase_work_engines", d.DecodeWork, phaseDecode)
	s.finite("controller_objective", d.Objective, "candidate")
	s.finite("controller_objective", d.Delta, "improvement")
	o.decodeModelSeries(s)
}

// finite leaves out what the contract writes as null.
func (s *series) finite(name string, v control.Ratio, labels ...string) {
	if f := float64(v); !math.IsInf(f, 0) && !math.IsNaN(f) {
		s.put(name, f, labels...)
	}
}

func (o *owner) decodeModelSeries(s *series) {
	m := o.decodeModel()
	if m.engines == 0 {
		return
	}
	s.put("controller_decode_tokens_per_engine", m.tokens, "projected")
	s.put("controller_decode_tokens_per_engine", m.sloTokens, "slo_capacity")
	s.put("controller_decode_tokens_per_engine", m.kvTokens, "kv_capacity")
	s.put("controller_decode_requests_per_engine", m.requests)
	s.put("controller_decode_model", m.correction, "correction")
	s.flag("controller_decode_model", m.covered, "profile_covered")
}

func (o *owner) evidenceSeries(s *series) {
	now := o.now()
	for _, w := range o.n.demand() {
		v := w.look(now)
		s.count("demand_history_cells", v.cells, w.name)
		s.count("demand_history_cell_limit", v.limit, w.name)
		s.count("demand_history_observations", v.seen, w.name)
		s.count("demand_history_overflow_observations", 0, w.name)
	}
	e := o.evidence(now)
	s.put("demand_evidence_span_seconds", e.span)
	s.count("demand_evidence_arrivals", e.arrivals)
	s.flag("demand_evidence_closed", e.closed)
	if e.risk != "" {
		s.put("demand_evidence_risk_age_seconds", e.riskAge)
	}
	if o.last != nil {
		s.finite("demand_evidence_short_decode_engines", o.last.DecodeWork)
		s.finite("demand_evidence_envelope_decode_engines", max(o.last.DecodeWork, o.last.SteadyDecode))
	}
	if e.trend > 0 {
		s.put("demand_evidence_trend_ratio", e.trend)
	}
	for _, gate := range []string{"risk", "evidence", "trend"} {
		s.flag("demand_evidence_refused", e.gate == gate, gate)
	}
	if e.risk != "" {
		s.count("demand_evidence_risk_events_total", e.recoveries, riskRecovery)
	}
	v := o.n.outcomes.look(now)
	s.put("attainment_evidence_covered_seconds", v.covered)
	s.count("attainment_evidence_outcomes", v.seen)
	s.count("attainment_evidence_buckets", v.cells)
	if v.prunedCells > 0 {
		s.count("attainment_evidence_pruned_total", v.prunedCells, "buckets")
		s.count("attainment_evidence_pruned_total", v.pruned, "outcomes")
	}
}

package router

import "github.com/narwhal-fleet/narwhal/runtime/model"

// series writes what the owner knows; only the owner calls it.
func (o *owner) series(s *series, seen seen) {
	s.put("contract_info", 1, "metrics", "2")
	o.requestSeries(s)
	o.admissionSeries(s, seen)
	o.engineSeries(s)
	o.breakerSeries(s)
	o.floorSeries(s)
	o.monitorSeries(s, seen)
	o.controlSeries(s)
	o.evidenceSeries(s)
	o.ownSeries(s)
}

func (o *owner) requestSeries(s *series) {
	n := &o.n
	s.count("offered_total", n.offered)
	s.count("unsized_offered_total", n.unsized)
	s.count("served_total", n.served)
	s.count("slo_met_total", n.sloMet)
	s.reasons("failed_total", n.failed)
	s.reasons("rejected_total", n.rejected)
	s.reasons("expired_total", n.expired)
	s.reasons("refused_total", n.refused)
	s.count("cancelled_total", n.cancelled)
	s.count("invalid_requests_total", n.invalid)
	s.count("unserved_total", n.unserved)
	s.count("prefill_attempts_total", n.prefillAttempts)
	s.count("decode_attempts_total", n.decodeAttempts)
	s.count("retry_attempts_total", n.retryAttempts)
	for k, v := range n.attemptFailures {
		s.count("attempt_failures_total", v, k[0], k[1])
	}
	s.count("served_after_retry_total", n.servedAfterRetry)
	s.count("retry_credits_spent_total", n.creditsSpent)
	s.count("retry_denied_total", n.retryDenied)
	s.put("retry_credits", o.budget.least(o.now()))
	s.count("decode_tokens_observed_total", n.tokens)
	s.put("upstream_seconds_total", n.prefillSeconds, phasePrefill)
	s.put("upstream_seconds_total", n.decodeSeconds, phaseDecode)
	s.count("http_retained", n.retained)
	s.count("http_retained_limit", o.set.most())
	s.count("http_retained_high_water", n.retainedHigh)
}

func (o *owner) admissionSeries(s *series, seen seen) {
	s.count("admission_inflight", o.n.inflight)
	s.count("admission_inflight_limit", o.set.limit)
	s.put("admission_info", 1, o.mode())
	s.put("admission_margin", o.set.params.Margin)
	s.put("router_loop_lag_seconds", seen.lag)
	s.put("request_sizing_delay_seconds", seen.sizing)
	s.put("saturation_threshold_seconds", o.saturation())
	w := o.waiting()
	s.count("queued", w.queued)
	s.count("queue_capacity", w.capacity)
	s.count("queue_high_water", w.highWater)
	s.count("waiting_prefill", w.prefill)
	s.count("waiting_decode", w.decode)
	s.put("slo_seconds", o.set.params.TTFT, "ttft", sloLabel(o.set.params.TTFT))
	s.put("slo_seconds", o.set.params.TPOT, "tpot", sloLabel(o.set.params.TPOT))
	s.flag("router_ready", o.view.Load().reason() == "")
	epoch, _ := o.view.Load().term()
	s.put("router_lease_epoch", float64(epoch))
}

func (o *owner) engineSeries(s *series) {
	pools := map[model.Role]int{model.Prefill: 0, model.Decode: 0}
	for _, n := range o.nodes {
		pools[n.role]++
	}
	for _, n := range o.nodes {
		s.put("instance_role", 1, n.id, string(n.role))
		if pools[model.Prefill] == 0 {
			s.put("instance_role", 1, n.id, phasePrefill)
		}
		p, d := n.resident()
		s.count("resident_requests", p, n.id, phasePrefill)
		s.count("resident_requests", d, n.id, phaseDecode)
		p, d, _ = o.seats(n)
		s.count("engine_seats", p, n.id, phasePrefill)
		s.count("engine_seats", d, n.id, phaseDecode)
		if b, ok := o.bound(n); ok {
			s.put("kv_lease_seconds", b.lease, n.id)
			s.put("handoff_bound_seconds", b.bound, n.id)
		}
		h := o.drift(n)
		s.count("health_windows_scored_total", h.scored, n.id)
		s.count("health_windows_undersampled_total", h.undersampled, n.id)
		s.count("health_prefill_pauses_total", h.pauses, n.id)
		s.flag("health_prefill_paused", h.paused, n.id)
		if h.probation {
			s.put("probation_instances", 1, n.id)
		}
		s.flag("engine_draining", n.draining, n.id)
		s.flag("engine_ready_to_stop", n.state == stateDrained, n.id)
		s.put("engine_lifecycle_state", 1, n.id, n.state)
	}
	load := o.loads()
	for role, v := range pools {
		s.count("pool_instances", v, string(role))
		s.put("pool_load", load[string(role)], string(role))
	}
}

func (o *owner) breakerSeries(s *series) {
	ejected := 0
	for _, n := range o.nodes {
		if n.ejected != "" {
			ejected++
			s.put("ejected", 1, n.id)
		}
		for _, c := range classes {
			s.count("engine_breaker_streak", n.streak[c], n.id, c)
		}
		if n.verifying != "" {
			s.put("engine_breaker_verifying", 1, n.id, n.verifying)
		}
		for _, kind := range o.held(n) {
			s.put("engine_held", 1, n.id, kind)
			if kind == holdTimed {
				s.put("engine_quarantined", 1, n.id)
			}
		}
	}
	s.count("ejected_instances", ejected)
	for k, v := range o.n.ejections {
		s.count("engine_ejections_total", v, k[0], k[1])
	}
	for k, v := range o.n.holdStarts {
		s.count("engine_hold_starts_total", v, k[0], k[1])
	}
	for k, v := range o.n.holdEnds {
		s.count("engine_hold_ends_total", v, k[0], k[1], k[2])
	}
	for k, v := range o.n.readmissions {
		s.count("engine_readmissions_total", v, k[0], k[1])
	}
	for k, v := range o.n.probes {
		s.count("engine_probes_total", v, k[0], k[1], k[2])
	}
}

func (o *owner) floorSeries(s *series) {
	s.flag("prefill_below_floor", o.n.belowFloor)
	s.count("prefill_below_floor_events_total", o.n.breaches)
	s.put("prefill_below_floor_seconds_total", o.belowFloorSeconds())
	s.count("decode_floor", o.set.control.MinDecode)
	s.flag("decode_below_floor", o.liveOf(model.Decode) < o.set.control.MinDecode)
	s.count("decode_floor_restorations_total", o.moves["decode_floor:decode"])
}

func (o *owner) monitorSeries(s *series, seen seen) {
	m := o.monitoring()
	s.flag("monitoring_degraded", m.degraded)
	s.count("monitoring_core_consecutive_failures", m.consecutive)
	s.count("monitoring_core_failures_total", m.failures)
	for _, name := range stages {
		s.count("monitoring_stage_failures_total", m.stages[name].failures, name)
		s.count("monitoring_stage_consecutive_failures", m.stages[name].consecutive, name)
	}
	s.put("event_loop_lag_seconds", seen.lag)
	s.put("event_loop_lag_high_water_seconds", seen.lagHigh)
	s.put("event_loop_busy_seconds_total", seen.busy)
}

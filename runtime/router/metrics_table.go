package router

import "strings"

// Metric is one family of /metrics. The list of them makes the registration and the page
// docs/metrics.md.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
	// Ours is false for the families of the narwhal.metrics contract, version 2.
	Ours bool
}

// Metrics lists every family, the contract's first.
func Metrics() []Metric {
	return append(families(contractTable, false), families(ownTable, true)...)
}

// MetricDifferences are the deliberate differences from the reference's exposition.
var MetricDifferences = []string{
	"A family without a series has no HELP and TYPE lines, and families come by name: the Prometheus library writes them so. Scrapers see no difference.",
	"Whole numbers stand without `.0`, also in `le`, unless the scraper asks for OpenMetrics. Prometheus 3 makes both one.",
	"`narwhal_controller_last_decision` has the label `rule` beside the reference's labels: its values are few, so that an alert can name one.",
	"Label values are escaped and at most 120 bytes long.",
	"`narwhal_router_loop_lag_seconds` and `narwhal_event_loop_lag_*` are the run-queue latency: no single loop can be late. A late timer alone refuses nobody.",
	"`narwhal_event_loop_busy_seconds_total` counts the processor seconds of the whole process.",
	"`narwhal_demand_evidence_risk_age_seconds`, `…_short_decode_engines` and `…_envelope_decode_engines` are absent until there is something to show, instead of 0.",
	"`narwhal_demand_history_*` of the window `residency` stay 0: the controller reads what is resident from its snapshot. Cells are one second wide, so none overflows.",
	"`narwhal_refused_total` knows `cause=\"aggregate_unpriced\"` and never counts it: every placement has a price.",
	"`narwhal_retry_credits` is what the cause with least has left of the retry budget: each cause has its own. It starts at `serving.retry_budget` too.",
	"HEAD is answered; the reference has 405.",
}

var kinds = map[string]string{"c": "counter", "g": "gauge", "h": "histogram"}

func families(table string, ours bool) (out []Metric) {
	for line := range strings.Lines(table) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(f) < 4 {
			continue
		}
		m := Metric{Name: "narwhal_" + f[0], Type: kinds[f[1]], Help: f[3], Ours: ours}
		if f[2] != "-" {
			m.Labels = strings.Split(f[2], ",")
		}
		out = append(out, m)
	}
	return out
}

// Name, kind, labels (- = none) and help, one family a line.
const contractTable = `
contract_info g contract,version Version of this metrics contract.
offered_total c - Completion requests offered.
unsized_offered_total c - Requests that ended before their prompt was sized.
served_total c - Requests completed.
slo_met_total c - Requests completed within both targets.
failed_total c reason Requests that failed.
rejected_total c reason Requests turned away unpriced.
expired_total c reason Requests that ran out of time.
refused_total c cause Requests refused by their price.
cancelled_total c - Requests whose client left.
invalid_requests_total c - Requests at fault themselves.
unserved_total c - Placements without a candidate within the promise.
prefill_attempts_total c - Prefill legs sent.
decode_attempts_total c - Decode legs sent.
retry_attempts_total c - Further attempts after a failed one.
attempt_failures_total c phase,reason Failed attempts; a series begins with its first one.
served_after_retry_total c - Requests completed by a further attempt.
retry_credits_spent_total c - Retries that the budget paid for.
retry_denied_total c - Retries that the budget refused.
retry_credits g - Retries that may be sent now for the cause that has least of them left.
decode_tokens_observed_total c - Output tokens, by the engines' count.
upstream_seconds_total c phase Seconds of legs.
http_retained g - Requests in the router.
http_retained_limit g - Most requests in the router.
http_retained_high_water g - Most requests seen at once.
admission_inflight g - Seats taken.
admission_inflight_limit g - Seats.
admission_info g mode 1 for the admission mode.
admission_margin g - Share by which a price may exceed the promise.
router_loop_lag_seconds g - How long a runnable goroutine waits for a processor, 99th percentile of the last second or more.
request_sizing_delay_seconds g - Median time to size a prompt over the last 2 s; 0 below 8 requests.
saturation_threshold_seconds g - Sizing delay from which the router counts as saturated.
queued g - Requests waiting for a seat.
queue_capacity g - Places to wait; 0 without a queue.
queue_high_water g - Most requests seen waiting.
waiting_prefill g - Requests waiting for a prefill seat.
waiting_decode g - Requests waiting for a decode seat.
queue_wait_seconds h stage,slo Time waited at a stage.
seat_seconds h slo Time that an admission seat was held.
ttft_seconds h slo Arrival to the end of the prefill leg.
tpot_seconds h slo Seconds per output token after the prefill.
slo_seconds g metric,slo The promise.
instance_role g iid,role 1 on the current role; without a prefill engine each decode engine has both.
pool_instances g role Engines of a role.
pool_load g role Load of a role; 1 is the promise.
resident_requests g iid,phase Requests on the engine.
engine_seats g iid,phase Requests that the engine is given at once; 0 = no limit.
kv_lease_seconds g iid How long the engine keeps a handoff; only where attested.
handoff_bound_seconds g iid Until when a handoff may be used; only where attested.
ejected_instances g - Ejected engines.
ejected g iid Present while ejected.
engine_quarantined g iid Present while quarantined.
probation_instances g iid Present while on probation.
engine_held g iid,kind Present while held.
engine_ejections_total c iid,cause Ejections; a series begins with its first one.
engine_hold_starts_total c iid,kind Holds begun.
engine_hold_ends_total c iid,kind,cause Holds ended.
engine_probes_total c iid,kind,outcome Probes of suspects.
engine_readmissions_total c iid,evidence Engines taken back.
engine_breaker_streak g iid,class Consecutive failures of a class.
engine_breaker_verifying g iid,kind Present while a suspect is probed.
health_windows_scored_total c iid Drift windows with enough samples.
health_windows_undersampled_total c iid Drift windows without.
health_prefill_pauses_total c iid Drift windows that a prefill interrupted.
health_prefill_paused g iid 1 while a prefill holds the drift window up.
engine_draining g iid 1 while held out of placement.
engine_ready_to_stop g iid 1 once drained.
engine_lifecycle_state g iid,state 1 on the current state.
prefill_below_floor g - 1 while too few prefill engines are live.
decode_below_floor g - 1 while too few decode engines are live.
decode_floor g - Least decode engines.
prefill_below_floor_events_total c - Times that prefill fell below its floor.
prefill_below_floor_seconds_total c - Seconds that it was below.
decode_floor_restorations_total c - Moves that brought decode back to its floor.
router_ready g - 1 while the router admits requests.
router_lease_epoch g - Epoch of the router lease.
monitoring_degraded g - 1 while the monitoring fails too often.
monitoring_core_consecutive_failures g - Monitoring passes in a row with a failed stage.
monitoring_core_failures_total c - Monitoring passes with a failed stage.
monitoring_stage_failures_total c stage Failures of a monitoring stage.
monitoring_stage_consecutive_failures g stage Failures in a row of a monitoring stage.
event_loop_lag_seconds g - As router_loop_lag_seconds: Go has no event loop.
event_loop_lag_high_water_seconds g - Largest lag seen.
event_loop_busy_seconds_total c - Processor seconds of the whole process.
flips_total c to,by Role moves.
flip_reversals_total c - Moves against the one before.
flips_refused_total c - Moves that a guard held.
flip_inflight_total c phase Requests on engines as they moved.
controller_advisory g - 1 when the controller decides without moving.
controller_decisions_total c by,result Evaluations.
controller_proposed_engines g role Split chosen by the last evaluation.
controller_last_decision g by,reason,result,rule The last evaluation; rule is one of few words, reason is its sentence.
controller_projected_slo_ratio g phase Projected share of the promise.
controller_phase_work_engines g phase Measured demand, in engines.
controller_objective g value Score of the chosen split, and its gain.
controller_decode_tokens_per_engine g value Tokens that a decode engine holds.
controller_decode_requests_per_engine g - Requests that a decode engine holds.
controller_decode_model g value Correction of the decode curve, and whether it covers the work.
demand_history_cells g window Cells of a demand history.
demand_history_cell_limit g window Most cells of it.
demand_history_observations g window Requests in it.
demand_history_overflow_observations g window Requests in it that share a cell for want of room.
demand_evidence_span_seconds g - History that a move from decode to prefill rests on.
demand_evidence_arrivals g - Arrivals in that history.
demand_evidence_closed g - 1 once it suffices.
demand_evidence_risk_age_seconds g - Age of the newest risk event; present with one.
demand_evidence_short_decode_engines g - Decode demand over the short horizon; present with an evaluation.
demand_evidence_envelope_decode_engines g - The larger of short and long; present with an evaluation.
demand_evidence_trend_ratio g - Short over long; present with a long estimate.
demand_evidence_refused g gate 1 on the gate that holds moves.
demand_evidence_risk_events_total c kind Risk events; begins with the first one.
attainment_evidence_covered_seconds g - Age of the oldest outcome kept.
attainment_evidence_outcomes g - Outcomes kept.
attainment_evidence_buckets g - Buckets they are kept in.
attainment_evidence_pruned_total c kind What left the window; begins with the first pruning.
`

const ownTable = `
router_journal_rows_written_total c - Lines in the journal, meta lines and events included.
router_engine_correction g iid,phase What the engine's work takes over what its profile says: prefill time, and time between tokens. Prices are corrected by it.
router_journal_rows_dropped_total c - Lines that were lost.
router_journal_bytes_total c - Bytes written to the journal.
router_journal_queue_rows g - Lines that wait for the disk.
router_journal_queue_bytes g - Their size in memory, about.
router_journal_queue_capacity_rows g - Lines that may wait.
router_journal_queue_high_water_rows g - Most lines seen waiting.
router_journal_waiting_requests g - Requests that a lossless journal makes wait.
router_journal_rotations_total c - Journal files ended.
router_journal_reopened_total c - Journal files begun anew because the one that was written had been removed or replaced.
router_journal_write_errors_total c - Writes and rotations that failed.
router_journal_failing g - 1 while the journal cannot be written.
router_client_connections g - Connections that clients keep open.
router_client_connections_limit g - Most of them, as the limit of open files allows; 0 = no bound.
router_client_connections_closed_total c - Connections without a request that were closed for new ones.
router_lease_guard_ends_total c - Ends of the process that frees a lease in etcd when this router dies; it is started anew.
router_log_lines_dropped_total c - Lines of the log that standard error did not take: its reader stood still, or had gone.
router_goroutines g - Goroutines.
router_body_bytes g - Bytes of clients' bodies that the router holds; serving.body_memory_bytes bounds them.
router_answer_bytes g - Bytes of engines' answers that the router holds, where one has more than 4 KiB; as many as serving.body_memory_bytes bound them.
router_answers_ended_total c - Answers of engines that were ended because the others had that memory.
router_heap_bytes g - Live and unswept heap objects.
router_memory_bytes g - Memory that the Go runtime holds from the system.
router_processors g - Processors that the runtime may use.
router_handoff_refusals_total c iid Handoffs that failed their check, by their producer.
router_retry_denials_total c cause Retries that the budget refused, by cause.
router_drift_score g iid Token interval of the last drift window over the one of the profile; absent before the first.
router_prefix_chunks g iid Parts of prompts, of 512 bytes each, that the engine's cache is believed to hold; absent with --prefix-affinity off.
router_prefix_believed_tokens_total c iid Tokens that an engine was believed to hold of prompts that it prefilled and told what it held.
router_prefix_confirmed_tokens_total c iid Of those, what the engine said that it held.
router_stripped_fields_total c field Client fields that no engine was given.
router_stray_handoffs_total c - Handoffs that nobody read: their blocks stay until the lease ends.
router_engine_alarms_total c iid,alarm What engines' own counters say went wrong although every answer was good.
router_late_notifications_total c - Of those, notifications of a handoff after its expiry.
router_barred_pair g producer,consumer 1 while no request is split over the pair.
router_tenant_inflight g tenant Requests of a tenant in the router.
router_tenant_share g tenant Seats that a tenant may count on beside who else has demand now.
router_tenant_admitted_total c tenant Requests of a tenant that got a seat; _removed stands for all that the file names no more.
router_tenant_tokens_total c tenant Tokens of prompts and answers.
router_tenant_refused_total c tenant,reason Requests turned away by a tenant's limits.
`

package router

import "strings"

// Use says what becomes of a key of the fleet document.
type Use string

// Uses of keys.
const (
	UseActed Use = ""       // the router acts on it
	UseGates Use = "gates"  // only the gates do
	UseNote  Use = "note"   // it tells people something
	UseNone  Use = "nobody" // accepted, so that documents of the reference load, and without effect
)

// Setting is one key of the plain fleet document. The list of them makes
// docs/configuration.md; types, defaults and bounds come from package schema there.
type Setting struct {
	Key  string // engines[].iid is a member of each engine; a.* is everything below a
	Unit string // "" = none
	Flag string // of narwhal serve, which wins over the key; "" = none
	Use  Use
	Says string
}

// Settings lists every key in the document's order.
func Settings() (out []Setting) {
	for l := range strings.Lines(settingTable) {
		f := strings.SplitN(strings.TrimSpace(l), " ", 5)
		if len(f) < 5 {
			continue
		}
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
		}
		out = append(out, Setting{f[0], f[1], f[2], Use(f[3]), f[4]})
	}
	return out
}

// Key, unit, flag, use (- = the router acts on it) and meaning, one key a line.
const settingTable = `
schema - - - Names the document.
schema_version - - - Its version.
model - - - The one name that is served; a request that names another gets 404.
engines - - - The engines. Each must have a row in the profile store.
engines[].iid - - - Its id in state, metrics, journal and orders; unique.
engines[].url - - - Its address. ${NAME} is read from the environment.
engines[].attestation_url - - - Its sidecar. When every engine has one, the sidecars judge identities; otherwise profiles must be bound to the very process.
engines[].role - - - Its role at the start.
engines[].pin - - - The controller never changes its role.
engines[].shared_device.* - - gates Engines that share one GPU. The router does not weigh them against each other.
slo.ttft_s s - - The first-token target: admission, the controller and slo_met judge by it.
slo.tpot_s s - - The target of a token after the first.
hardware.* - - note -
engine_contract.* - - gates What engines attest; gates C and E check it.
controller.advisory - - - Decide and write it down, but move nothing.
controller.monitor_interval_s s - - Time between monitoring passes, and so the step of holds, drains and probes.
controller.monitor_failure_limit passes - - Broken passes in a row after which nothing is admitted any more.
controller.min_prefill engines - - Least prefill engines; at most engines in sum with min_decode.
controller.min_decode engines - - Least decode engines.
controller.flip_history moves - - Moves that /narwhal/state keeps.
controller.thresholds.expand share - - Score from which the present split counts as breaking the promise.
controller.thresholds.shrink share - - Score below which it counts as idle; below expand.
controller.thresholds.cooldown_s s - - Least time between moves from prefill to decode.
controller.thresholds.dwell_s s - - Least time that an engine keeps a role.
controller.thresholds.sustained_intervals evaluations - - Evaluations that must agree before a move: the larger of this and reactive.confirmations.
controller.thresholds.panic_ratio share - nobody There is no urgent evaluation.
controller.thresholds.flip_resident_guard requests - - Decode residents above which a decode engine keeps its role; 0 = no guard.
controller.reactive.window_s s - - The long horizon of demand.
controller.reactive.confirmations evaluations - - See thresholds.sustained_intervals.
controller.reactive.utilization share - - Share of an engine that a plan may fill.
controller.reactive.min_arrivals requests - - Requests in a horizon below which nothing is decided.
controller.reactive.demand_floor engines - - Demand below which nothing moves.
controller.reactive.movement_margin share - - Least gain of a move.
controller.reactive.step_s s - - Time between evaluations, but for the first ones; the short horizon is this times the evaluations that must agree.
controller.reactive.evidence_span_s s - - History that a consolidation, or a move back, needs; at most evidence_max_span_s.
controller.reactive.evidence_max_span_s s - nobody Bounds what state shows; no decision rests on it. At most window_s.
controller.reactive.evidence_min_arrivals requests - nobody Closes the evidence that state shows; no decision rests on it.
controller.reactive.demand_rise_tolerance share - nobody No decision compares demands by it.
controller.reactive.decode_correction_min share - - Least correction of an engine's curves by what it does.
controller.reactive.decode_correction_max share - - Largest one; at least decode_correction_min.
controller.reactive.decode_correction_alpha share - - Weight of one interval of full work in it.
controller.reactive.decode_correction_min_samples tokens - - Tokens in an interval below which the decode curve's correction stays.
serving.admission - - - With predictive a request that would miss its targets is refused; with open its price is noted and nobody is refused for it.
serving.admission_margin share - - Share by which a price may exceed slo.ttft_s.
serving.max_connections requests --max-concurrent - Requests that have a seat at once, and connections to one engine. Connections of clients are bounded by the limit of open files: at the bound the one longest without a request is closed for a new one.
serving.request_timeout_s s - - Limit of a request, from its arrival to the last byte, over both legs and the retries.
serving.prefill_timeout_s s - - Limit of a prefill leg, and of the wait for the first token of an unsplit request; at most request_timeout_s.
serving.graceful_timeout_s s --graceful-timeout - Time that open requests get when the router ends; whole seconds.
serving.queue_capacity requests - - Requests that may wait for a seat, oldest first; 0 = nobody waits. Above 0 it needs queue_timeout_s.
serving.queue_timeout_s s - - Longest wait for a seat. With predictive admission it also ends with the first-token budget. Who would wait longer is refused at once.
serving.max_attempts attempts - - Attempts of a request before the first byte of its output; 1 = never try again.
serving.retry_base_s s - - The wait before a retry is random, up to this. At most retry_cap_s.
serving.retry_cap_s s - - Bound of that wait.
serving.retry_budget retries - - Retries that each cause has within 10 s whatever the traffic; 0 = no retries. The first retry after the death or the ejection of an engine is not counted.
serving.retry_replenish share - - Share of the legs sent in the last 10 s that may be tried again for each cause, where that is more than retry_budget. A request has two legs: with 0.1 a fifth of the requests may be tried again.
serving.max_request_bytes bytes - - Size of a client's body; more is 413.
serving.body_memory_bytes bytes - - Bytes of clients' bodies that the router holds together, from their first byte until their legs cannot be sent again; at least max_request_bytes. Unset = 64 × max_request_bytes. Above it a body that has stood still for 1 s is ended, else the newcomer gets 429. The answers of engines that the router holds have as much again, at least max_response_bytes: above it the answer that grows is ended with 502. No key of the reference.
serving.max_response_bytes bytes - - Size of a buffered answer, of what comes before the first token, and of one event of a stream.
engine.backend - - - Chooses the dialect.
engine.connector - - gates -
engine.dialect - - gates The router takes the dialect of the backend.
engine.tokenize - - - Ask an engine for the exact length of a prompt that is text.
engine.tokenize_timeout_s s - - Limit of such a count; after it the estimate counts.
engine.chars_per_token characters - - Characters of a token in the estimate.
engine.engine_api_key_env - - - Name of the variable whose value goes to engines as a bearer token. It must be set.
engine.control_connections connections - - Connections of probes to all engines; 0 = two an engine. Each has its share, and four at least.
engine.pool_timeout_s s - - Time to wait for a free connection to an engine.
engine.connect_timeout_s s - - Time to open a connection.
engine.health_timeout_s s - - Limit of a probe.
engine.decode_read_timeout_s s - - Silence between tokens after which the stream has failed; comments are silence; 0 = no limit.
engine.first_token_timeout_s s - - Time from the decode leg to its first token; with SGLang at most 30 s.
engine.first_token_calibration_path - - nobody -
recovery.eject_after failures - - Failures of one class in a row after which an engine is probed or ejected.
recovery.readmit_every intervals - - Monitoring passes between questions to ejected engines.
recovery.liveness_every intervals - - Monitoring passes between sweeps over the others; 0 = no sweeps.
recovery.liveness_misses sweeps - - Sweeps in a row without an answer after which an engine is ejected.
recovery.engine_restart_policy - - - With whole_wave engines are drained and readmitted together only; it needs a complete engine_contract.
recovery.failure_quarantine_s s - - Time that an engine is held after a failed leg, if others cover its role; 0 = it is not held.
recovery.state_path - --state-path - File of the handoff document, written at each pass.
recovery.resume - --resume - Restore that file at the start. The flag adds to the key.
recovery.health.window_s s - - Time of decoding that is judged together.
recovery.health.drift_band times - - An engine is over when its tokens take longer than this times what its profile, or its own past, says.
recovery.health.min_samples passes - - Passes with decoding that a window needs to count.
recovery.health.probation_windows windows - - Windows over in a row after which other engines are preferred.
recovery.health.evict_windows windows - - Windows over in a row after which the engine is probed: it is ejected if the probe fails, at most one engine a minute, and only while others cover its role.
recovery.health.recovery_windows windows - - Windows within the band in a row that end a probation.
recovery.health.probation_penalty_s s - - What a pair costs more with an engine on probation.
recovery.health.relative_band times - - An engine is not to blame up to this times its peers' median while half of them are over too; 0 = always to blame.
profiles.path - --profiles - The profile store. The journal lies beside it unless --journal says otherwise.
profiles.max_decode_fit_mape share - gates Gate F judges profiles by it.
profiles.max_decode_cv_mape share - gates The same, cross-validated.
`

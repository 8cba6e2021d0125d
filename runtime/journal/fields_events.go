package journal

// Events, then their members as in fields.go; an empty line between two.
const eventTable = `
controller_decision: One evaluation of the role controller. It has every split that was looked at; which other members stand depends on what was known.
prefill | int | engines | - | Split that was chosen; the current one when held.
decode | int | engines | - | -
by | string | - | - | reactive, decode_floor or floor_recovery.
reason | string | - | - | One sentence.
result | string | - | - | applied, held, blocked or advisory.
applied | bool | - | - | -
inputs | object | - | in a journal | What it was made from: the fleet and the controller's state, so that it can be made again.
current_prefill | int | engines | - | Split before it.
current_decode | int | engines | - | -
prefill_work | number or null | engines | - | Demand of the short horizon.
decode_work | number or null | engines | - | -
arrivals | int | - | - | Requests in it.
output_observations | int | - | - | Answers whose length was seen.
demand_complete | bool | - | - | Whether the history suffices.
demand_horizon_s | number or null | s | - | Its length.
steady_prefill_work | number or null | engines | - | Demand of the long horizon.
steady_decode_work | number or null | engines | - | -
projected_ttft_ratio | number or null | share | - | First token over its target, under the chosen split.
projected_tpot_ratio | number or null | share | - | Token over its target.
objective | number or null | - | - | Score of the split.
objective_delta | number or null | - | - | Gain over the current one.
eligibility_rule | string | - | - | mixed_pressure, steady_demand, floor or empty.
confirmations | int | - | - | Evaluations that agreed.
required_confirmations | int | - | - | As many are needed.
iid | string | - | of a move | Engine that moves.
splits | list or null | - | - | Each split with its score.
observed_prefill_ratio | number | share | - | Load of the role; 1 is the promise.
recovery_prefill_ratio | number | share | - | The same.
observed_decode_ratio | number | share | - | -
recovery_decode_ratio | number | share | - | -
queued_prefill_s | number | s | - | Prefill work that waits at engines.
arrivals_beyond_profile | int | - | - | Always 0: each length has a price.
unsized_offers | int | - | - | Offers that ended before they were sized.
ttft_slo_s | number | s | - | The target.
evidence_span_s | number | s | - | History that a move to prefill rests on.
evidence_arrivals | int | - | - | Arrivals in it.
evidence_closed | bool | - | - | Whether it suffices.
evidence_blocked_gate | string or null | - | - | What holds such a move.
decode_tokens_per_engine | number | tokens | with decode engines | What a decode engine holds.
decode_slo_capacity_tokens | number | tokens | with decode engines | What it could hold within the target.
decode_kv_capacity_tokens | number | tokens | with decode engines | What its cache holds.
decode_requests_per_engine | number | - | with decode engines | Requests that it holds.
decode_correction | number | - | with decode engines | Correction of its curve.
decode_profile_covered | bool | - | with decode engines | Whether the curve covers the work.

role_moved: An engine got another role.
iid | string | - | - | -
from | string | - | - | prefill or decode.
to | string | - | - | -
by | string | - | - | As in controller_decision.
rule | string | - | - | As eligibility_rule.
prefill_inflight | int | - | - | Requests on it as it moved.
decode_inflight | int | - | - | -

below_floor: Fewer prefill engines are live than controller.min_prefill.
live_prefill | int | - | - | -
min_prefill | int | - | - | -
ejected | list | - | - | Ids of ejected engines.
quarantined | list | - | - | Always empty; holds have events of their own.

below_floor_recovered: Enough are live again.
duration_s | number | s | - | How long there were too few.
live_prefill | int | - | - | -
min_prefill | int | - | - | -

decode_floor_restored: A move brought decode back to its floor.
iid | string | - | - | Engine that moved.
live_decode | int | - | - | -
min_decode | int | - | - | -

engine_ejected: An engine is out of placement until it is readmitted.
iid | string | - | - | -
cause | string | - | - | connection, liveness, health_probe, inference_probe, drift, process_identity, profile_generation or role_switch.

engine_readmitted: It is back.
iid | string | - | - | -
evidence | string | - | - | health, verification or lifecycle.

engine_hold_started: An engine is held out of placement while it is a suspect.
iid | string | - | - | -
kind | string | - | - | timed or inference.
duration_s | number or null | s | - | Length of a timed hold.

engine_hold_ended: The hold is over.
iid | string | - | - | -
kind | string | - | - | -
cause | string | - | - | expired, superseded, health, verification, lifecycle, ejected, drained or uncovered.
held_s | number | s | - | -

engine_probe: A suspect was probed.
iid | string | - | - | -
kind | string | - | - | verify_health or verify_inference.
outcome | string | - | - | passed, failed, inconclusive, producer_failed, consumer_failed, pair_failed (it is well with another producer) or unavailable.
producer | string or null | - | of verify_inference | Engine whose KV the suspect read; null: it was asked alone.
recorded_producer | string or null | - | of verify_inference | Engine with whose KV it had failed.
producer_class | string | - | of producer_failed | Breaker class of the producer's failure, which says nothing of the suspect.
consumer | string | - | where the suspect prefills and a peer decodes | Engine that read the suspect's KV.
consumer_class | string | - | of consumer_failed | Breaker class of the consumer's failure.
prefill_class | string | - | where that leg failed | Breaker class of the prefilling leg's failure.
decode_class | string | - | where that leg failed | Breaker class of the decoding leg's failure.
reason | string | - | of unavailable | no_producer or no_consumer.

pair_barred: KV does not arrive over a pair of engines although both are well with others: no request is split over it.
producer | string | - | - | Prefill engine of the pair.
consumer | string | - | - | Decode engine of the pair.
error | string | - | - | What a probe over the pair saw.

pair_restored: Requests may be split over it again.
producer | string | - | - | -
consumer | string | - | - | -
cause | string | - | - | passed (a probe), process or role (one of the two is another process, or another role's, since).
barred_s | number | s | - | -

engine_probation: An engine makes tokens slower than its band allows, and others are preferred; or no longer.
iid | string | - | - | -
on | bool | - | - | Whether the probation begins.
score | number | share | - | Token interval of the last window over the one of the profile.
limit | number | share | - | What it may be.
peers | number | share | - | Median score of the other engines; 0 without one.

engine_alarm: An engine's own counters say that something went wrong although its answers were good.
iid | string | - | - | -
alarm | string | - | - | notification_after_expiry: KV was read after its time; lease_expired: KV was never read; local_recompute: a decode engine prefilled by itself. Other clients of the engine, another router among them, cause the last one too.
count | int | - | - | How often since the last look.

engine_lifecycle: A drain, a hold of the fleet or a readmission went on. Its clock is the wall's.
action | string | - | - | drain_started, process_recorded, drain_blocked, drain_complete, drain_deadline_exceeded, wave_started, wave_ready_to_stop, validation_started, recovery_validation_started, validation_failed, readmitted, wave_readmitted, restart_required, process_excluded or profile_recovery_blocked.
wave_id | string | - | - | Id of the hold of the whole fleet; empty without one.
iid | string | - | of one engine | -
resident | object | - | of one engine | Its requests, as prefill and decode.
process_start | number | s, wall | where it is known | When its process began.
error | string | - | where it is blocked | Why.
engines | list | - | of a wave | Ids of the engines that it holds, validates or returns.
reason | string | - | of process_excluded, restart_required | What was found, or the cause of the ejection.
previous_process_start | number | s, wall | of process_excluded | Start of the process that was known.
observed_process_start | number | s, wall | of process_excluded where it is told | Start of the one that answers.

profile_activated: An engine's profile was replaced while the router served. Decisions from then on are made with its curve in place of that of the meta line.
iid | string | - | - | -
generation_digest | string | - | - | What the profile is bound to; empty where it is bound to nothing.
curve | object | - | - | As in the meta line.

handoff_refused: A prefill returned a handoff that failed its check.
iid | string | - | - | Its producer.
rid | string | - | - | The request.
why | string | - | - | -

monitoring_stage_failure: A part of a monitoring pass broke.
stage | string | - | - | rollover, telemetry, health or controller.
class | string | - | - | panic.
consecutive | int | - | - | Passes in a row.

monitoring_degraded: Too many passes broke in a row (controller.monitor_failure_limit): nothing is admitted.
stage | string | - | - | -
class | string | - | - | -
core_consecutive | int | - | - | -

monitoring_recovered: A pass went well again.

journal_dropped: Lines were lost before this one.
rows | int | - | - | How many.
cause | string | - | - | queue_full or not_encodable.

journal_reopened: The file that was written was no longer at the journal's path: this one was begun, or continued.
cause | string | - | - | removed or replaced.

journal_changed: Another process wrote to the file or cut it. What it left stays; rows before this line may be missing.
bytes_before | int | B | - | What this process had written.
bytes_after | int | B | - | What was there.

journal_recovered: The file could not be written for a while.
failed_s | number | s | - | How long.
error | string | - | - | Why.
`

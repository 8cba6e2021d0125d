package journal

import "strings"

// Field is one member of a journal line. The lists of them make docs/journal.md; tests hold
// them against the types that are written.
type Field struct {
	Key  string // members of an object as object.member, of a list's items as list[].member
	Type string // string, int, number, bool, object or list; "or null" where it may be null
	Unit string // "" = none
	When string // "" = always there
	Says string
}

// EventKind is one kind of event line, with its own members beside the head.
type EventKind struct {
	Name, Says string
	Fields     []Field
}

// MetaFields are the members of the line that begins a file, within "meta".
func MetaFields() []Field { return fields(metaTable) }

// HeadFields begin every other line.
func HeadFields() []Field { return fields(headTable) }

// RowFields are the members of a request's row after the head, in order.
func RowFields() []Field { return fields(rowTable) }

// InputsFields are the members of a decision's inputs: all of the fleet, then those of a placement
// and of the controller.
func InputsFields() []Field { return fields(inputsTable) }

// EventKinds lists the events; each has event, at and at_unix after the head, then its own
// members by name.
func EventKinds() (out []EventKind) {
	for part := range strings.SplitSeq(strings.TrimSpace(eventTable), "\n\n") {
		first, rest, _ := strings.Cut(part, "\n")
		name, says, _ := strings.Cut(first, ": ")
		out = append(out, EventKind{name, says, fields(rest)})
	}
	return out
}

func fields(table string) (out []Field) {
	for l := range strings.Lines(table) {
		f := strings.Split(strings.TrimSpace(l), " | ")
		if len(f) != 5 {
			continue
		}
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
		}
		out = append(out, Field{f[0], f[1], f[2], f[3], f[4]})
	}
	return out
}

// key | type | unit | when | meaning, one member a line; - is nothing.
const metaTable = `
schema | string | - | - | narwhal.journal
schema_version | int | - | - | 1
package | string | - | - | narwhal
version | string | - | - | Release of the binary.
git | string or null | - | - | Revision that it was built from.
source | string | - | - | Always empty: a binary has no package files.
token_accounting | string | - | - | How output is counted: usage.
admission | object | - | - | -
admission.mode | string | - | - | predictive or open.
admission.margin | number | share | - | By how much a price may exceed the first-token target.
params | object | - | - | What decisions are judged by, so that rows replay.
params.ttft_s | number | s | - | First-token target.
params.tpot_s | number | s | - | Target of a token after the first.
params.margin | number | share | - | As admission.margin.
params.open | bool | - | - | Prices are noted and refuse nobody.
params.lend | number | - | above 0 | Share of the first-token target that a prefill must wait for decode engines to take it.
params.fixed_roles | bool | - | when true | A role is a state of the engine: none stands in for the other role.
curves | object | - | with engines | By engine, what placements and the controller take it to do: prefill of n tokens takes a·n² + b·n + c seconds (split more beyond block_tokens), a decode step slope·tokens + request_slope·requests + intercept; with the bounds of what was measured.
at_unix | number | s, wall | - | When the file began.
part | int | - | from the second file of a process | Number of the file.
`

const headTable = `
schema | string | - | - | narwhal.journal
schema_version | int | - | - | 1
run | string | - | - | Id of the router's process; its clock begins at 0 with it.
`

const rowTable = `
rid | string | - | - | Id of the request; the client has it as X-Request-Id.
client_rid | string or null | - | - | The client's own X-Request-Id.
arrived | number | s, router | - | When the request came.
at_unix | number | s, wall | - | The same moment.
input_len | int | tokens | - | Length of the prompt, counted or estimated; 0 when it was not sized.
input_sized | bool | - | - | Whether it was sized.
wanted_len | int | tokens | - | The client's limit of the answer; 0 = none.
output_len | int or null | tokens | - | Length of the answer, by the engine's own count.
ttft_s | number or null | s | - | Arrival to the end of the prefill leg.
tpot_s | number or null | s | - | Seconds a token from then on, over the answer's tokens after the first.
first_byte_s | number or null | s | - | Arrival to the first output from the decode engine.
decode_tpot_s | number or null | s | - | Seconds a token from the first output on.
queue_wait_s | number | s | - | Time waited for a seat of the router.
queue_waits | object | s | - | The same by stage; null for a stage that was not reached. Only admission has a queue.
queue_waits.admission | number or null | s | - | -
queue_waits.prefill | number or null | s | - | -
queue_waits.decode | number or null | s | - | -
admission_price | object or null | - | - | What the last placement priced the first token at.
admission_price.attempt | int | - | - | Of which attempt.
admission_price.backlog_s | number | s | - | Prefill work before it.
admission_price.own_prefill_s | number | s | - | Its own prefill.
admission_price.elapsed_s | number | s | - | Time since the arrival.
admission_price.handoff_s | number | s | - | The transfer.
admission_price.price_s | number | s | - | The sum, which the budget is held against.
duration_s | number | s | - | Arrival to end.
attempts | int | - | - | Attempts that were placed.
decode_attempts | int | - | - | Decode legs sent.
attempt_failures | list | - | - | Attempts that failed.
attempt_failures[].at | number | s, router | - | When.
attempt_failures[].attempt | int | - | - | Which, from 1.
attempt_failures[].phase | string | - | - | admission, prefill or decode.
attempt_failures[].reason | string | - | - | As the row's reason.
attempt_failures[].prefill_iid | string or null | - | - | Prefill engine.
attempt_failures[].decode_iid | string or null | - | - | Decode engine.
attempt_failures[].error_type | string | - | - | Type of the error, had it been answered.
attempt_failures[].error_message | string | - | - | Detail, at most 240 bytes.
attempt_failures[].status | int or null | - | - | The engine's status.
attempt_failures[].transient | bool | - | - | Whether another try may help.
attempt_failures[].output_started | bool | - | - | Whether the client had output.
attempt_failures[].retry_scheduled | bool | - | - | Whether it was tried again from the start.
attempt_failures[].backoff_s | number or null | s | - | Wait before that.
attempt_failures[].retry_reason | string | - | - | allowed, continued, or why not: not_dispatched, output_started, attempt_limit, non_transient, original_deadline, shared_budget.
decode_tokens_observed | int or null | tokens | - | As output_len.
upstream_seconds | object | s | - | Time that legs took, over all attempts.
upstream_seconds.prefill | number | s | - | -
upstream_seconds.decode | number | s | - | -
prefill_iid | string or null | - | - | Prefill engine of the last attempt.
decode_iid | string or null | - | - | Decode engine of it.
crossed | bool | - | - | Whether they are two.
cached_tokens | object | tokens | - | By engine, what its prefix cache held of the prompt.
cache_placement | object or null | - | - | Of a placement that rested on tokens in an engine's cache; null otherwise.
cache_placement.placed_iid | string | - | - | Prefill engine.
cache_placement.placed_cached_tokens | int | tokens | - | Of the prompt, believed to be in its cache.
cache_placement.evidence_sequence | int or null | - | - | Always null: what a cache holds is estimated from the prompts that the engine had.
cache_placement.predicted_prefill_s | number | s | - | Predicted prefill of the rest.
cache_placement.cold_prefill_s | number | s | - | Predicted prefill there of the whole prompt.
cache_placement.cold_choice_iid | string or null | - | - | Prefill engine if no cache held anything; null = refused.
token_accounting | string | - | - | usage, or unavailable without a count.
error | string or null | - | - | Detail for operators, at most 500 bytes.
status | int or null | - | - | HTTP status of the answer.
error_type | string or null | - | - | As the client saw it; decode once a stream has begun.
error_code | string or null | - | - | As the client saw it.
reason | string or null | - | - | Why; see the reasons.
terminal | string | - | - | How it ended; see the terminals.
refused | bool | - | when true | Terminal is refused.
refused_cause | string | - | of refused | queue, prompt or decode.
rejected | bool | - | when true | Terminal is rejected.
readiness_reason | string | - | of rejected, when not ready | What /ready said.
expired | bool | - | when true | Terminal is expired.
cancelled | bool | - | when true | Terminal is cancelled.
cancelled_phase | string | - | of cancelled | admission, prefill or decode.
finish_reason | string or null | - | - | The engine's word.
slo_met | bool | - | - | Completed within both targets, as the router saw it.
trace_id | string | - | with traces | Id of the request's trace.
decision | object | - | when it was placed or refused | The last placement: every candidate with the parts of its cost, or why it was dropped; in inputs what it was made from, so that it can be made again.
earlier_decisions | list | - | after a retry | The placements of the attempts before, in order, each as decision.
`

const inputsTable = `
now | number | s, router | - | When it was decided.
handoff_s | number | s | - | Mean delay of a KV transfer between two engines.
engines | list | - | - | Each engine as the router saw it, in the order of the fleet file; curves stand in the meta line.
barred | list | - | while there are some | Pairs over which no request is split: p and d are which engines, from 0.
asked | list | - | when residents mattered | What was asked of the residents of engines, and the answer; at most 4,096.
asked[].engine | int | - | - | Which engine, from 0.
asked[].at | number | s, router | of seats | The moment that was asked for.
asked[].interval_s | number | s | of seats | Seconds a token until then.
asked[].requests | int | - | when not 0 | Seats that are taken then.
asked[].tokens | int | tokens | when not 0 | KV that is held then.
asked[].slack | object | - | of a prefill to lend | How long residents can bear one.
asked[].slack.s | number | s | - | Seconds.
asked[].slack.endless | bool | - | when nobody is there | -
asked_cut | bool | - | when more was asked | It cannot be made again.
first | bool | - | of a placement | Whether it was judged by the promise, as first attempts are.
request | object | - | of a placement | What it asked for: rid, arrived, input, expected, unsplit, tokens that each engine is believed to hold, engines to avoid.
state | object | - | of the controller | All that the controller remembered.
`

package router

import (
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// ErrorRow is one way in which a request of a client fails before its first output. The list
// of them makes docs/errors.md, and every failure that the tests of this package provoke must
// be one of them.
type ErrorRow struct {
	Name       string // for tests; unique
	Status     int    // 0 = nobody is left to answer
	Type, Code string // Code: a word, "null", or Absent; AnyPhase for a failed leg
	Param      string // Absent, "null", "member" (the member at fault), or "member or null"
	Message    string // … stands for what varies
	RetryAfter string // "" = no header
	Condition  string
	Terminal   string // of the journal row; "" = there is no row
	Reasons    []model.Reason

	engine bool // the refusal is an engine's own
}

// Words of the columns.
const (
	Absent   = "—"
	AnyPhase = "phase" // admission, prefill or decode; the code is the same word
)

// answered, if not nil, sees each failure as a client is told of it; late means by an event
// in a stream. Tests set it.
var answered func(f *failure, late bool)

func told(f *failure, late bool) {
	if answered != nil {
		answered(f, late)
	}
}

type reasons = []model.Reason

const (
	badRequest = "invalid_request_error"
	busy       = "server_overloaded_error"
)

// Errors lists every row by status.
func Errors() []ErrorRow {
	var out []ErrorRow
	for _, part := range [][]ErrorRow{errorsOfClients, errorsOfLoad, errorsOfReadiness, errorsOfTime, errorsOfEngines} {
		out = append(out, part...)
	}
	return out
}

// What the client did. No engine is blamed and nothing is tried again.
var errorsOfClients = []ErrorRow{
	{Name: "empty_body", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body is empty; send a JSON object", Condition: "There is no body, or white space alone.", Terminal: journal.Invalid},
	{Name: "not_utf8", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body is not valid UTF-8 at byte offset …: …", Condition: "Bytes that are no UTF-8, wherever they stand. Escaped surrogates without their pair pass: they are valid JSON.", Terminal: journal.Invalid},
	{Name: "too_deep", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body is nested deeper than … levels at byte offset …", Condition: "More than 10000 values within each other.", Terminal: journal.Invalid},
	{Name: "not_json", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body is not valid JSON at byte offset …: …", Condition: "The body is no JSON. The message names the first byte at fault, and causes such as a byte order mark, UTF-16, compression, `NaN` or something behind the object.", Terminal: journal.Invalid},
	{Name: "not_object", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body must be a JSON object", Condition: "The body is JSON, but no object.", Terminal: journal.Invalid},
	{Name: "unreadable_body", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body cannot be read…", Condition: "The body's transfer encoding is broken. The connection is closed.", Terminal: journal.Invalid},
	{Name: "short_body", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "the request body ended early", Condition: "The client stopped within its body. The connection is closed.", Terminal: journal.Cancelled},
	{Name: "messages_items", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "every item in messages must be an object", Condition: "`messages` holds something else than objects.", Terminal: journal.Invalid},
	{Name: "options_without_stream", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "stream_options is for streams: it must be left out unless stream is true", Condition: "vLLM: `stream_options` without `stream: true`, which its engines refuse as well.", Terminal: journal.Invalid},
	{Name: "wrong_type", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "… must be …", Condition: "`model`, `stream`, `stream_options`, `n`, `best_of`, `max_tokens`, `max_completion_tokens`, `prompt`, `messages` or, buffered, `tools` or `modalities` has another type than it may have; `n` is below 1, above 128 or above `best_of`.", Terminal: journal.Invalid},
	{Name: "tools_kind", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "non-streaming tools must have type function", Condition: "A buffered request names a tool of another type.", Terminal: journal.Invalid},
	{Name: "buffered_audio", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "non-streaming audio output is not supported", Condition: "A buffered request has `audio`.", Terminal: journal.Invalid},
	{Name: "reserved", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "… is reserved for Narwhal", Condition: "`vllm_xargs` reaches into the KV transfer; with SGLang also `rid` and `bootstrap_host`, `…_port`, `…_room`.", Terminal: journal.Invalid},
	{Name: "sglang_chat", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "… is not served for chat by this backend", Condition: "SGLang, chat: `return_token_ids`, `return_prompt_token_ids` or `return_meta_info`.", Terminal: journal.Invalid},
	{Name: "unsplittable", Status: 400, Type: badRequest, Code: "null", Param: "null", Message: "this fleet's engines serve split requests only, and this one cannot be split: …", Condition: "SGLang, where no engine serves whole requests.", Terminal: journal.Invalid},
	{Name: "beyond_context", Status: 400, Type: badRequest, Code: "null", Param: "member", Message: "the prompt has … tokens; this fleet's maximum context length is … tokens, and the answer needs at least one of them", Condition: "A prompt that no engine of the fleet can hold: one that was counted, or one that was refused and whose estimate is beyond every context or KV cache. `param` is `prompt` or `messages`.", Terminal: journal.Invalid},
	{Name: "engine_says", Status: 400, Type: badRequest, Code: "null", Param: "member or null", Message: "…", Condition: "An engine answered 400: its own message, without addresses.", Terminal: journal.Invalid, engine: true},
	{Name: "no_key", Status: 401, Type: badRequest, Code: "invalid_api_key", Param: "null", Message: "no valid API key; send it as Authorization: Bearer KEY", Condition: "There is a file of tenants and the request has no key of it.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonUnauthorized}},
	{Name: "no_control", Status: 401, Type: badRequest, Code: "invalid_api_key", Param: "null", Message: "no control token; send the one that the router was started with (--control-token) as Authorization: Bearer TOKEN, or the key of a tenant that may control", Condition: "A route that changes the lifecycle, without the control token. `WWW-Authenticate: Bearer` comes with it."},
	{Name: "foreign_site", Status: 403, Type: badRequest, Code: "foreign_site", Param: "null", Message: "a web page of another site may not change the lifecycle", Condition: "A route that changes the lifecycle, sent by a browser for a page of another site (`Origin`, `Sec-Fetch-Site`)."},
	{Name: "other_model", Status: 404, Type: badRequest, Code: "model_not_found", Param: "member", Message: "model … is not served here; this router serves …", Condition: "`model` is another than the fleet's.", Terminal: journal.Invalid},
	{Name: "engine_says_404", Status: 404, Type: badRequest, Code: "null", Param: "member or null", Message: "…", Condition: "An engine answered 404.", Terminal: journal.Invalid, engine: true},
	{Name: "slow_head", Status: 408, Type: "request_timeout", Code: "null", Param: "null", Message: "the request head did not arrive within …", Condition: "Every path: the head took longer than `--header-timeout` from its first byte. The connection is closed. A connection that sent nothing is closed without a word."},
	{Name: "slow_body", Status: 408, Type: "request_timeout", Code: "null", Param: "null", Message: "the request body did not arrive within …", Condition: "The body took longer than 60 s. The connection is closed.", Terminal: journal.Invalid},
	{Name: "stalled_body", Status: 408, Type: "request_timeout", Code: "null", Param: "null", Message: "the request body came slower than … bytes a second", Condition: "The body brought less than 1 KiB a second over 10 s, or nothing for 1 s while another one needed its memory. The connection is closed.", Terminal: journal.Invalid},
	{Name: "large_body", Status: 413, Type: "request_too_large", Code: "null", Param: "null", Message: "request body exceeds max_request_bytes", Condition: "The body is larger than `serving.max_request_bytes`. The connection is closed.", Terminal: journal.Invalid},
	{Name: "engine_says_413", Status: 413, Type: badRequest, Code: "null", Param: "member or null", Message: "…", Condition: "An engine answered 413.", Terminal: journal.Invalid, engine: true},
	{Name: "encoded_body", Status: 415, Type: badRequest, Code: "unsupported_content_encoding", Param: "null", Message: "the request body is encoded as …; send it without Content-Encoding", Condition: "`Content-Encoding` is something else than `identity`. The connection is closed.", Terminal: journal.Invalid},
	{Name: "foreign_host", Status: 421, Type: badRequest, Code: "foreign_host", Param: "null", Message: "this router listens on loopback and does not answer to the name in the Host header…", Condition: "Every path of a router on loopback: the `Host` header is no loopback name."},
	{Name: "engine_says_422", Status: 422, Type: badRequest, Code: "null", Param: "member or null", Message: "…", Condition: "An engine answered 422.", Terminal: journal.Invalid, engine: true},
	{Name: "left", Type: Absent, Code: Absent, Param: Absent, Condition: "The client left: legs are aborted, nothing is answered. `cancelled_phase` says when.", Terminal: journal.Cancelled},
}

// What the fleet cannot take now. Nothing was sent to an engine, but for engine_busy.
var errorsOfLoad = []ErrorRow{
	{Name: "inflight", Status: 429, Type: busy, Code: "null", Param: "null", Message: "router in-flight limit reached", RetryAfter: "until a seat is expected to be free, 1 to 60", Condition: "As many requests as `serving.max_connections` (`--max-concurrent`) and `serving.queue_capacity` together are in the router.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonInflight}},
	{Name: "body_memory", Status: 429, Type: busy, Code: "null", Param: "null", Message: "the bodies of the requests in the router take all the memory that they may have together", RetryAfter: "1", Condition: "The bodies in the router have `serving.body_memory_bytes`, and none of them stands still. The connection is closed.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonInflight}},
	{Name: "queue", Status: 429, Type: busy, Code: "null", Param: "null", Message: "no seat comes free within the time that the request may wait", RetryAfter: "until a seat is expected to be free, 1 to 60", Condition: "It waited `serving.queue_timeout_s` for a seat, or would have to; or until the first-token budget was gone.", Terminal: journal.Expired, Reasons: reasons{model.ReasonQueueTimeout}},
	{Name: "tenant", Status: 429, Type: busy, Code: "null", Param: "null", Message: "the limits of this API key are reached: …", RetryAfter: "until the limit lets it in, at most 3600; none when waiting does not help", Condition: "A limit of the tenant: its seats, its share, its tokens. The word behind the colon is that of `narwhal_router_tenant_refused_total`.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonTenant}},
	{Name: "refused_queue", Status: 429, Type: busy, Code: "null", Param: "null", Message: "the cheapest placement prices the first token at … against a budget of …", RetryAfter: "price less budget, 1 to 3600", Condition: "Work before it would break the first-token target.", Terminal: journal.Refused, Reasons: reasons{model.ReasonQueue}},
	{Name: "refused_prompt", Status: 429, Type: busy, Code: "null", Param: "null", Message: "the prompt's own prefill prices the first token at … against a budget of …; waiting does not help", Condition: "The prompt alone breaks the first-token target.", Terminal: journal.Refused, Reasons: reasons{model.ReasonPrompt}},
	{Name: "refused_decode", Status: 429, Type: busy, Code: "null", Param: "null", Message: "no decode engine can take the request within its promise: …", RetryAfter: "1", Condition: "No decode engine has a seat, room in its KV cache, or time within the token target.", Terminal: journal.Refused, Reasons: reasons{model.ReasonSlotWait, model.ReasonKVCapacity, model.ReasonTPOT}},
	{Name: "engine_busy", Status: 429, Type: busy, Code: "null", Param: "null", Message: upstreamFailed, RetryAfter: "1", Condition: "Every engine that was tried answered 429, or 503 with an error type: its own queue is full.", Terminal: journal.Failed, Reasons: reasons{model.ReasonOverloaded}},
}

var errorsOfReadiness = []ErrorRow{
	{Name: "not_ready", Status: 503, Type: "standby", Code: "standby", Param: Absent, Message: "Router is not ready", RetryAfter: "1", Condition: "The router does not admit, for the reason that `/ready` gives: standby, fenced, held, monitoring degraded, ending. The row's `readiness_reason` has it.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonNotReady}},
	{Name: "no_live_engine", Status: 503, Type: "backend_unavailable", Code: "backend_unavailable", Param: Absent, Message: "No engines are available", RetryAfter: "1", Condition: "No engine is live.", Terminal: journal.Rejected, Reasons: reasons{model.ReasonNotReady}},
	{Name: "no_engine", Status: 503, Type: "no_schedulable_engines", Code: "no_schedulable_engines", Param: Absent, Message: "Engine capacity is unavailable", RetryAfter: "1", Condition: "No live engine can take a leg.", Terminal: journal.Failed, Reasons: reasons{model.ReasonNoEngine}},
	{Name: "no_other_engine", Status: 503, Type: "backend_unavailable", Code: "backend_unavailable", Param: Absent, Message: "Engine capacity is unavailable", RetryAfter: "1", Condition: "A retry found no engine outside those that failed.", Terminal: journal.Failed, Reasons: reasons{model.ReasonNoEngine}},
	{Name: "connections", Status: 503, Type: "connections", Code: "connections", Param: Absent, Message: "all connections that clients may have are in a request", RetryAfter: "1", Condition: "Clients have all their connections, all are in a request, and this one came on one of the few that are kept for `/health`, `/ready`, `/metrics` and `/narwhal/*`. The connection is closed; the journal has no row."},
	{Name: "shutdown", Status: 503, Type: "shutdown", Code: "shutdown", Param: Absent, Message: "Router is shutting down", RetryAfter: "1", Condition: "The router ended before the answer began.", Terminal: journal.Expired, Reasons: reasons{model.ReasonShutdown}},
}

var errorsOfTime = []ErrorRow{
	{Name: "deadline", Status: 504, Type: "request_expired", Code: Absent, Param: Absent, Message: "original request deadline expired", Condition: "`serving.request_timeout_s` passed since the arrival.", Terminal: journal.Expired, Reasons: reasons{model.ReasonDeadline}},
	{Name: "handoff", Status: 504, Type: "handoff_expired", Code: "handoff_expired", Param: Absent, Message: "KV handoff expired before decode dispatch", Condition: "A handoff grew too old to be used, and no retry was left.", Terminal: journal.Expired, Reasons: reasons{model.ReasonHandoff}},
}

// What engines did, after the retry if there was one.
var errorsOfEngines = []ErrorRow{
	{Name: "engine_timeout", Status: 504, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: upstreamFailed, Condition: "An engine answered 408 or 504, or passed a limit: `serving.prefill_timeout_s`, `engine.first_token_timeout_s`, `engine.decode_read_timeout_s`; or it was found stuck while it held the prefill.", Terminal: journal.Failed, Reasons: reasons{model.ReasonTimeout}},
	{Name: "no_connection", Status: 504, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: upstreamFailed, Condition: "No connection within `engine.connect_timeout_s`, none free within `engine.pool_timeout_s`, or no descriptor or port left on the router's machine.", Terminal: journal.Failed, Reasons: reasons{model.ReasonUnreach, model.ReasonPool}},
	{Name: "engine_failed", Status: 502, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: upstreamFailed, Condition: "Any other fault of a leg: an engine's 5xx, a 4xx that blames the router (401, 403), a refused or broken connection, a stream that ends early or holds an error, a bad handoff.", Terminal: journal.Failed,
		Reasons: reasons{model.ReasonEngine, model.ReasonRejected, model.ReasonConnection, model.ReasonUnreach, model.ReasonInvalid}},
	{Name: "engine_answer", Status: 502, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: "Invalid non-streaming upstream response", Condition: "A buffered answer could not be put together.", Terminal: journal.Failed, Reasons: reasons{model.ReasonInvalid}},
	{Name: "engine_large", Status: 502, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: "Response exceeds the configured limit", Condition: "An answer, or what comes before its first token, is larger than `serving.max_response_bytes`.", Terminal: journal.Failed, Reasons: reasons{model.ReasonLimit}},
	{Name: "answer_memory", Status: 502, Type: AnyPhase, Code: AnyPhase, Param: Absent, Message: "The answers in the router take all the memory that they may have together", Condition: "The answers of engines in the router have as many bytes as `serving.body_memory_bytes`, and this one grew.", Terminal: journal.Failed, Reasons: reasons{model.ReasonLimit}},
	{Name: "internal", Status: 500, Type: "internal", Code: Absent, Param: Absent, Message: "Internal Server Error", Condition: "A defect of the router. The answer is plain text.", Terminal: journal.Failed, Reasons: reasons{model.ReasonInternal}},
}

// LateRow is how a stream ends that fails after its first output, or after its first comment.
type LateRow struct {
	Name, Type, Code, Condition string
	Terminals                   []string
}

// LateErrors lists the terminal events.
func LateErrors() []LateRow {
	return []LateRow{
		{"late_failed", "decode", journal.Failed, "The decode engine failed: its connection, its silence beyond `engine.decode_read_timeout_s`, its stream: an error in any of the forms that engines have for it, an event without a name that is no JSON (the reference passes it on; words may be lost with it), an end without `[DONE]`, a `[DONE]` with neither a finish reason nor the usage before it.", []string{journal.Failed}},
		{"late_prefill", "prefill", journal.Failed, "The prefill leg failed: with SGLang beside a decode leg that streams, with vLLM only after a comment of `--keep-alive`.", []string{journal.Failed}},
		{"late_expired", "decode", journal.Expired, "The request's deadline passed, or the router ended.", []string{journal.Expired}},
		{"late_handoff", "prefill", journal.Expired, "After a comment of `--keep-alive`: a handoff expired.", []string{journal.Expired}},
		{"late_refused", "decode", journal.Failed, "After a comment of `--keep-alive`, or where a stream was to go on elsewhere: what would have been an HTTP error before.", []string{journal.Refused, journal.Rejected, journal.Invalid}},
	}
}

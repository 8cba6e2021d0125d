package router

// difference is one thing that a client or an engine can tell apart between the recorded
// router and this one. name lists cases, or the kind of a leg.
type difference struct {
	name, what, why string
	racy            bool // a defect that does not show every time
}

// deliberate differences. The tests check that each still is as noted, and that
// docs/differences.md tells the same.
var deliberate = []difference{
	{name: "buffered_completion, buffered_completion_token_ids, buffered_chat, buffered_error_after_tokens_then_retry, single_engine_aggregated, two_decode_engines_aggregated",
		what: `choices[0].logprobs absent → null; choices[0].stop_reason absent → null`,
		why:  "A buffered answer names logprobs and stop_reason where they are empty, as an engine's own does. Its other empty members (prompt_logprobs, token_ids, refusal and the like) are left out."},
	{name: "buffered_chat_tools",
		what: `choices[0].logprobs absent → null; choices[0].message.content "" → null; choices[0].stop_reason absent → null`,
		why:  "As above; a message that only calls tools has null content, as engines and the public API write it."},
	{name: "stream_comments_and_malformed",
		what: `events "Hel" · "lo" · : ping · event: note · not json · ", " · "na" · [DONE] → : early · "Hel" · "lo" · : ping · event: note ↵ data: not json · ", " · "na" · [DONE]`,
		why:  "Events reach the client byte for byte: an event name stays with its data, and a comment from before the first token is sent with that token instead of being dropped."},
	{name: "n_above_one, best_of_above_one", what: `status 400 → 200`, why: "Several sequences of one prompt cannot be handed over, so they run whole on one engine instead of being refused."},
	{name: "count_rejected_by_engine",
		what: `status 502 → 400; error.code "admission" → null; error.param absent → null; error.type "admission" → "invalid_request_error"`,
		why:  "An engine's 400, 404, 413 or 422 is the client's fault: status and message pass, addresses are removed, no engine is blamed. A refused count only means an estimate, so the leg decides."},
	{name: "prefill_400",
		what: `status 502 → 400; error.code "prefill" → null; error.param absent → null; error.type "prefill" → "invalid_request_error"`,
		why:  "As above."},
	{name: "prefill_429_everywhere",
		what: `status 502 → 429; retry-after none → 1; error.code "prefill" → null; error.param absent → null; error.type "prefill" → "server_overloaded_error"`,
		why:  "When every engine is busy the client should wait, not give up: 429 with retry-after."},
	{name: "decode_missing_token_ids_buffered", what: `status 502 → 200`,
		why: "Output is counted from the engine's closing usage, which is exact; token ids are not asked for, so an answer without them is whole."},
	{name: "late_bad_token_ids",
		what: `events "Hel" · error decode failed → "Hel" · "lo" · ", " · "na" · "rw" · "hal" · [DONE]`,
		why:  "As above, streamed."},
	{name: "queue_expired_admission_seat",
		what: `status 504 → 429; retry-after none → 1; error.code absent → null; error.param absent → null; error.type "queue_expired" → "server_overloaded_error"`,
		why:  "A full fleet is no fault of time: the client is told when a seat is expected to be free, and at once when that is too late."},
	{name: "refused_prompt, refused_queue, refused_slot_wait, inflight_limit, body_too_large", what: `error.code absent → null; error.param absent → null`,
		why: "Every error below 500 has all four members of the public API's form; null where there is nothing to say."},
	{name: "other_model", what: `error.param absent → "model"`, why: "As above; the member at fault is named."},
	{name: "saturated", what: `status 429 → 200; retry-after 1 → none`,
		why: "A late timer of the router refuses nobody; only queues and prices do."},
	{name: "drain_without_contract", what: `status 503 → 200`,
		why: "A fleet without a contract can drain an engine: what a drain needs is checked before the hold, and nothing stays held after a refusal."},
	{name: "readmit_without_contract", what: `status 409 → 200`,
		why: "A drain can be undone: the engine returns after it told who it is and its profile still holds."},
	{name: "second_drain_without_contract", what: `status 409 → 200`,
		why: "A drain that can be undone needs no other to wait for it; a contracted fleet drains one engine at a time."},
	{name: "recovery_with_a_dead_engine", what: `readmitted none → p0, d0`,
		why: "When no engine serves, all that are well validate each other and return together; one that stays dead does not keep the fleet down."},
	{name: "sidecar_fails_once", what: `ejected process_identity → none`,
		why: "A changed process is out at once; one that only cannot be verified is out after recovery.liveness_misses sweeps, so that a sidecar's restart ejects nobody."},
	{name: "stream_at_stop", what: `events "Hel" · (cut off) → "Hel" · error decode expired`,
		why: "A stop ends every stream with its terminal event and is not taken for the client's leaving."},
	{name: "recorded_handoff",
		what: `status 200 → 502`,
		why:  "Handoffs of the recorded shape (a flat list of blocks, no token count) make current engines fail or answer with other words; they are refused and the prefill is tried elsewhere once."},
	{name: "prompt_beyond_context", what: `status 429 → 400; error.code absent → null; error.param absent → "prompt"; error.type "server_overloaded_error" → "invalid_request_error"`,
		why: "A counted prompt that no engine can hold is the client's fault; shortening it is the only remedy."},
	{name: "foreign_host", what: `status 200 → 421`,
		why: "A router on loopback answers to loopback names only, so that no web page reaches it through its reader's browser."},
	{name: "framework_pages", what: `status 200 → 404`, why: "The pages /docs, /redoc and /openapi.json belonged to the reference's web framework, not to its contract."},
	{name: "stuck_health", what: `status 200 → 503; status "ok" → "stuck"`,
		why: "A router that does not answer itself says so instead of looking well."},
}

// legDifferences are those of the calls to engines.
var legDifferences = []difference{
	{name: "prefill", what: `body.kv_transfer_params.do_remote_prefill absent → false`, why: "Both directions are said, as current engines document them."},
	{name: "prefill", what: `body.max_completion_tokens absent → 1`, why: "Every output limit that the client sent is set to 1; on chat this spelling outranks the other."},
	{name: "prefill", what: `body.max_tokens 1 → absent`, why: "Only limits that the client sent are set; without any, max_tokens is."},
	{name: "prefill", what: `leg of count_rejected_by_engine absent → present`, why: "A refused count does not end a request: the engine's own answer to the prompt does."},
	{name: "prefill", what: `leg of prefill_no_handoff absent → present`, why: "A prefill without a handoff is tried once more on another engine."},
	{name: "decode", what: `body.return_token_ids true → absent`, why: "Token ids cost bytes and time at every token; the closing usage counts as well."},
	{name: "decode", what: `body.stream_options absent → {"include_usage":true}`, why: "Asks for that closing usage; the client sees it only if it asked too."},
}

// defects of this router that are known and not mended yet: a row must go with its defect.
var defects = []difference{
	{name: "queue_expired_prefill_seat", what: `error.code "expired" → absent; error.type "expired" → "request_expired"`,
		why: "No prefill seats: the request waits inside its engine until its own deadline."},
}

// legDefects are those of the calls to engines.
var legDefects = []difference{}

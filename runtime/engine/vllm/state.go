package vllm

import "github.com/narwhal-fleet/narwhal/runtime/engine"

// State reads a scrape of vLLM 0.32, and of older ones where only the name of a gauge differs.
// Transfer counters are optional: an engine without a connector has none.
func (dialect) State(s engine.Samples) (engine.State, error) {
	var st engine.State
	r := reader{s: s}
	st.Running = r.requests("vllm:num_requests_running")
	st.Waiting = r.requests("vllm:num_requests_waiting")
	st.Deferred, _ = s.Requests("vllm:num_requests_waiting_by_reason", "reason", "deferred")
	st.Usage = r.need("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
	st.ProcessStart = r.need("process_start_time_seconds")
	st.Awake = r.awake()
	st.GenerationTokens = r.need("vllm:generation_tokens_total")
	st.PromptTokens = r.need("vllm:prompt_tokens_total")
	st.Iterations = r.may("vllm:iteration_tokens_total_count")
	st.IterationSum = r.may("vllm:iteration_tokens_total_sum")
	st.Preemptions = r.may("vllm:num_preemptions_total")
	const source = "vllm:prompt_tokens_by_source_total"
	st.LocalCompute = r.may(source, "source", "local_compute")
	st.LocalHit = r.may(source, "source", "local_cache_hit")
	st.Transferred = r.may(source, "source", "external_kv_transfer")
	_, st.HasTransfer = s.Sum("vllm:nixl_bytes_transferred_count")
	st.Transfers = r.may("vllm:nixl_bytes_transferred_count")
	st.TransferBytes = r.may("vllm:nixl_bytes_transferred_sum")
	st.TransferSeconds = r.may("vllm:nixl_xfer_time_seconds_sum")
	st.FailedTransfers = r.may("vllm:nixl_num_failed_transfers_total")
	st.Expired = r.may("vllm:nixl_num_kv_expired_reqs_total")
	st.LateNotices = r.may("vllm:nixl_num_notifications_after_expiry_total")
	st.FinishedOK = r.may("vllm:request_success_total")
	st.FinishedErr = r.may("vllm:request_success_total", "finished_reason", "error")
	st.FinishedOK -= st.FinishedErr + r.may("vllm:request_success_total", "finished_reason", "abort")
	st.PrefillTime = r.mean("vllm:request_prefill_time_seconds")
	st.QueueTime = r.mean("vllm:request_queue_time_seconds")
	st.FirstToken = r.mean("vllm:time_to_first_token_seconds")
	st.InterToken = r.mean("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
	st.EndToEnd = r.mean("vllm:e2e_request_latency_seconds")
	if len(r.missing) > 0 {
		return st, &engine.MissingError{Names: r.missing}
	}
	return st, nil
}

type reader struct {
	s       engine.Samples
	missing []string
}

func (r *reader) requests(name string) int {
	n, ok := r.s.Requests(name)
	if !ok {
		r.missing = append(r.missing, name)
	}
	return n
}

// need returns the first of several names that exists and notes the first when none does.
func (r *reader) need(names ...string) float64 {
	for _, n := range names {
		if v, ok := r.s.Quantity(n); ok {
			return v
		}
	}
	r.missing = append(r.missing, names[0])
	return 0
}

func (r *reader) may(name string, pairs ...string) float64 {
	v, _ := r.s.Quantity(name, pairs...)
	return v
}

func (r *reader) mean(names ...string) engine.Mean {
	for _, n := range names {
		if c, ok := r.s.Quantity(n + "_count"); ok {
			return engine.Mean{Sum: r.may(n + "_sum"), Count: c}
		}
	}
	return engine.Mean{}
}

// awake holds unless the engine says that it sleeps; old engines say nothing.
func (r *reader) awake() bool {
	v, ok := r.s.Sum("vllm:engine_sleep_state", "sleep_state", "awake")
	return !ok || v > 0
}

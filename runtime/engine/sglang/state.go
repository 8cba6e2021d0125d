package sglang

import "github.com/narwhal-fleet/narwhal/runtime/engine"

const prefix = "sglang:"

// State reads a scrape. What waits for the other leg counts as Deferred and, like every request
// that does not run yet, as Waiting. A prefilled request whose KV is still on its way out counts
// there too: it holds cache and no place in the batch.
//
// Without a process start of its own the engine leaves ProcessStart 0. It keeps no lease, so
// Expired counts rooms in which nobody came.
func (dialect) State(s engine.Samples) (engine.State, error) {
	r := reader{s: s}
	st := engine.State{Awake: true}
	st.Running = r.requests("num_running_reqs")
	for _, name := range []string{
		"num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs",
		"num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs",
	} {
		n, _ := s.Requests(prefix + name)
		st.Deferred += n
	}
	st.Waiting = r.requests("num_queue_reqs") + st.Deferred
	st.Usage = r.need("token_usage")
	st.ProcessStart, _ = s.Sum("process_start_time_seconds")
	st.GenerationTokens = r.need("generation_tokens_total")
	st.PromptTokens = r.need("prompt_tokens_total")
	st.LocalHit = r.may("cached_tokens_total")
	st.Preemptions = r.may("num_retracted_reqs")
	st.Transfers = r.may("kv_transfer_latency_ms_count")
	st.TransferSeconds = r.may("kv_transfer_latency_ms_sum") / 1e3
	st.TransferBytes = r.may("kv_transfer_total_mb_sum") * (1 << 20)
	_, st.HasTransfer = s.Sum(prefix + "kv_transfer_latency_ms_count")
	st.FailedTransfers = r.may("num_transfer_failed_reqs_total")
	st.Expired = r.may("num_bootstrap_failed_reqs_total")
	st.FinishedErr = st.FailedTransfers + st.Expired
	st.FinishedOK = r.may("num_requests_total") - r.may("num_aborted_requests_total") - st.FinishedErr
	st.QueueTime = r.mean("queue_time_seconds")
	st.FirstToken = r.mean("time_to_first_token_seconds")
	st.InterToken = r.mean("inter_token_latency_seconds")
	st.EndToEnd = r.mean("e2e_request_latency_seconds")
	st.PrefillTime = r.stage("prefill_forward")
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
	n, ok := r.s.Requests(prefix + name)
	if !ok {
		r.missing = append(r.missing, prefix+name)
	}
	return n
}

func (r *reader) need(name string) float64 {
	v, ok := r.s.Quantity(prefix + name)
	if !ok {
		r.missing = append(r.missing, prefix+name)
	}
	return v
}

func (r *reader) may(name string, pairs ...string) float64 {
	v, _ := r.s.Quantity(prefix+name, pairs...)
	return v
}

func (r *reader) mean(name string) engine.Mean {
	return engine.Mean{Sum: r.may(name + "_sum"), Count: r.may(name + "_count")}
}

func (r *reader) stage(stage string) engine.Mean {
	const name = "per_stage_req_latency_seconds"
	return engine.Mean{Sum: r.may(name+"_sum", "stage", stage), Count: r.may(name+"_count", "stage", stage)}
}

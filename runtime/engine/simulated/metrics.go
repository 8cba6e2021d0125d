package simulated

import (
	"math"
	"net/http"
	"strconv"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// page builds a scrape in the Prometheus text format.
type page struct {
	b      []byte
	labels string // engine and model of every series
}

// metrics shows the counters under the real engine's names, the misleading ones included: the
// external hits rise before a read that may fail, an abort moves no counter of finished
// requests, a pause shows nothing.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	p := &page{labels: `engine="0",model_name=` + string(appendString(nil, s.cfg.Model))}
	s.mu.Lock()
	st, g := s.core.Stats, s.core.Gauges()
	start := float64(s.shown(s.started).UnixNano()) / 1e9
	p.gauges(g)
	if s.cfg.SideChannel != "" {
		p.fetches(g)
		p.connector(&st)
	}
	p.counters(&st)
	p.histograms(&st)
	p.hits(s.hits)
	s.mu.Unlock()
	p.cacheInfo(s.cfg)
	p.kind("process_start_time_seconds", "gauge")
	p.b = append(p.b, "process_start_time_seconds "...)
	p.b = append(strconv.AppendFloat(p.b, start, 'f', 3, 64), '\n')
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(p.b)
}

func (p *page) kind(name, kind string) {
	p.b = append(p.b, "# TYPE "+name+" "+kind+"\n"...)
}

// line writes one series; more is extra labels with their values quoted, or "".
func (p *page) line(name, more string, v float64) {
	p.b = append(p.b, name...)
	p.b = append(p.b, '{')
	p.b = append(p.b, p.labels...)
	if more != "" {
		p.b = append(append(p.b, ','), more...)
	}
	p.b = append(p.b, "} "...)
	p.b = appendValue(p.b, v)
	p.b = append(p.b, '\n')
}

func appendValue(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return append(strconv.AppendFloat(b, v, 'f', 0, 64), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func (p *page) one(name, kind string, v float64) {
	p.kind(name, kind)
	p.line(name, "", v)
}

func (p *page) gauges(g core.Gauges) {
	p.one("vllm:num_requests_running", "gauge", float64(g.Running))
	p.one("vllm:num_requests_waiting", "gauge", float64(g.Capacity+g.Deferred))
	p.kind("vllm:num_requests_waiting_by_reason", "gauge")
	p.line("vllm:num_requests_waiting_by_reason", `reason="capacity"`, float64(g.Capacity))
	p.line("vllm:num_requests_waiting_by_reason", `reason="deferred"`, float64(g.Deferred))
	p.kind("vllm:engine_sleep_state", "gauge")
	p.line("vllm:engine_sleep_state", `sleep_state="awake"`, 1)
	p.line("vllm:engine_sleep_state", `sleep_state="weights_offloaded"`, 0)
	p.line("vllm:engine_sleep_state", `sleep_state="discard_all"`, 0)
	p.one("vllm:kv_cache_usage_perc", "gauge", g.Usage)
}

func (p *page) fetches(g core.Gauges) {
	const name = "vllm:num_requests_kv_fetch_by_stage"
	p.kind(name, "gauge")
	p.line(name, `stage="waiting_to_start"`, 0)
	p.line(name, `stage="in_progress"`, float64(g.Deferred-g.Done))
	p.line(name, `stage="completed_waiting"`, float64(g.Done))
}

func (p *page) connector(st *core.Stats) {
	p.histogram("vllm:nixl_xfer_time_seconds", &st.Transfer)
	p.histogram("vllm:nixl_post_time_seconds", &st.Post)
	p.histogram("vllm:nixl_bytes_transferred", &st.Bytes)
	p.histogram("vllm:nixl_num_descriptors", &st.Descriptors)
	for _, c := range []struct {
		name string
		v    int64
	}{
		{"vllm:nixl_num_failed_transfers_total", st.FailedTransfers},
		{"vllm:nixl_num_failed_notifications_total", st.FailedNotices},
		{"vllm:nixl_num_kv_expired_reqs_total", st.Expired},
		{"vllm:nixl_num_notifications_after_expiry_total", st.LateNotices},
	} {
		p.one(c.name, "counter", float64(c.v))
	}
}

func (p *page) counters(st *core.Stats) {
	for _, c := range []struct {
		name string
		v    int64
	}{
		{"vllm:prefix_cache_queries_total", st.Queries},
		{"vllm:prefix_cache_hits_total", st.Hits},
		{"vllm:external_prefix_cache_queries_total", st.ExternalQueries},
		{"vllm:external_prefix_cache_hits_total", st.ExternalHits},
		{"vllm:num_preemptions_total", st.Preemptions},
		{"vllm:prompt_tokens_total", st.Prompt},
		{"vllm:prompt_tokens_cached_total", st.Hits + st.ExternalHits},
		{"vllm:generation_tokens_total", st.Generated},
	} {
		p.one(c.name, "counter", float64(c.v))
	}
	p.split("vllm:prompt_tokens_by_source_total", "source", []string{"local_compute", "local_cache_hit", "external_kv_transfer"},
		st.LocalCompute, st.LocalHit, st.Transferred)
	p.split("vllm:prompt_tokens_cached_by_source_total", "source", []string{"device", "host", "p2p", "disk", "external_unspecified"},
		st.Hits, 0, st.ExternalHits, 0, 0)
	p.split("vllm:request_success_total", "finished_reason", []string{"stop", "length", "abort", "error", "repetition"},
		st.Stopped, st.Length, 0, st.Failed, 0)
	p.kind("vllm:admission_rejections_total", "counter")
	both := p.labels
	p.labels = both[len(`engine="0",`):] // this one has no engine label
	p.line("vllm:admission_rejections_total", `reason="max_num_queued_reqs"`, float64(st.Rejected))
	p.line("vllm:admission_rejections_total", `reason="max_num_queued_tokens"`, 0)
	p.labels = both
}

func (p *page) split(name, label string, values []string, counts ...int64) {
	p.kind(name, "counter")
	for i, v := range values {
		p.line(name, label+`="`+v+`"`, float64(counts[i]))
	}
}

func (p *page) histograms(st *core.Stats) {
	for _, h := range []struct {
		name string
		h    *core.Hist
	}{
		{"vllm:time_to_first_token_seconds", &st.FirstToken},
		{"vllm:inter_token_latency_seconds", &st.InterToken},
		{"vllm:request_time_per_output_token_seconds", &st.PerToken},
		{"vllm:e2e_request_latency_seconds", &st.EndToEnd},
		{"vllm:request_queue_time_seconds", &st.Queue},
		{"vllm:request_inference_time_seconds", &st.Inference},
		{"vllm:request_prefill_time_seconds", &st.Prefill},
		{"vllm:request_decode_time_seconds", &st.Decode},
		{"vllm:iteration_tokens_total", &st.Iteration},
		{"vllm:request_prompt_tokens", &st.PromptTokens},
		{"vllm:request_generation_tokens", &st.OutTokens},
		{"vllm:request_params_max_tokens", &st.MaxTokens},
		{"vllm:request_num_preemptions", &st.Preempts},
		{"vllm:request_prefill_kv_computed_tokens", &st.Computed},
	} {
		p.histogram(h.name, h.h)
	}
}

func (p *page) histogram(name string, h *core.Hist) {
	p.kind(name, "histogram")
	h.Buckets(func(le float64, n uint64) {
		p.line(name+"_bucket", `le="`+strconv.FormatFloat(le, 'g', -1, 64)+`"`, float64(n))
	})
	p.line(name+"_bucket", `le="+Inf"`, float64(h.Count))
	p.line(name+"_count", "", float64(h.Count))
	p.line(name+"_sum", "", h.Sum)
}

func (p *page) hits(hits map[hit]int) {
	p.kind("http_requests_total", "counter")
	for h, n := range hits {
		p.b = append(p.b, `http_requests_total{handler="`+h.handler+`",method="`+h.method+`",status="`+h.class+`"} `...)
		p.b = append(appendValue(p.b, float64(n)), '\n')
	}
}

func (p *page) cacheInfo(c Config) {
	quote := func(name string, v int64) string { return "," + name + `="` + strconv.FormatInt(v, 10) + `"` }
	caching := "False"
	if c.PrefixCaching {
		caching = "True"
	}
	more := `cache_dtype="auto",enable_prefix_caching="` + caching + `"` + quote("block_size", int64(c.BlockSize)) +
		quote("num_gpu_blocks", int64(c.Blocks)) + quote("kv_cache_size_tokens", int64(c.Blocks)*int64(c.BlockSize)) +
		quote("kv_cache_memory_bytes", int64(c.Blocks)*c.core().BytesPerBlock())
	p.kind("vllm:cache_config_info", "gauge")
	p.line("vllm:cache_config_info", more, 1)
}

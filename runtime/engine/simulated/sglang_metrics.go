package simulated

import (
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// sglMetrics shows the same counters under SGLang's names. The process's start is not among them.
func (s *Server) sglMetrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	role, kind := s.pair.role, map[string]string{engine.RoleNone: "unified"}[s.pair.role]
	if kind == "" {
		kind = role
	}
	p := &page{labels: `engine_type="` + kind + `",model_name=` + string(appendString(nil, s.cfg.Model)) + `,tp_rank="0"`}
	st := s.core.Stats
	p.sglGauges(role, s.core.Gauges(), s.core.Account(), s.waitingRooms())
	p.sglCapacity(s.cfg, s.core.Gauges(), &st)
	p.sglCounters(&st, &s.pair)
	p.sglHistograms(&st)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(p.b)
}

// waitingRooms counts prefilling legs to which nobody came yet. Call it with mu held.
func (s *Server) waitingRooms() (n int) {
	for _, r := range s.pair.rooms {
		select {
		case <-r.claimed:
		default:
			n++
		}
	}
	return n
}

// sglGauges sorts what waits by role: before and after the KV's way.
func (p *page) sglGauges(role string, g core.Gauges, a core.Account, rooms int) {
	queue, prealloc, transfer := g.Capacity, 0, 0
	if role == engine.RoleDecode {
		queue, prealloc, transfer = g.Done, g.Capacity, g.Deferred-g.Done
	}
	for _, m := range []struct {
		name string
		v    int
	}{
		{"num_running_reqs", g.Running},
		{"num_queue_reqs", queue},
		{"num_paused_reqs", a.Held},
		{"num_prefill_bootstrap_queue_reqs", rooms},
		{"num_prefill_inflight_queue_reqs", a.Leases},
		{"num_decode_prealloc_queue_reqs", prealloc},
		{"num_decode_transfer_queue_reqs", transfer},
	} {
		p.one("sglang:"+m.name, "gauge", float64(m.v))
	}
}

func (p *page) sglCapacity(c Config, g core.Gauges, st *core.Stats) {
	room := float64((c.Blocks - 1) * c.BlockSize)
	hits := 0.0
	if st.Queries > 0 {
		hits = float64(st.Hits) / float64(st.Queries)
	}
	for _, m := range []struct {
		name string
		v    float64
	}{
		{"token_usage", g.Usage},
		{"kv_available_tokens", float64(g.Free * c.BlockSize)},
		{"kv_used_tokens", room - float64(g.Free*c.BlockSize)},
		{"max_total_num_tokens", room},
		{"page_size", float64(c.BlockSize)},
		{"cache_hit_rate", hits},
		{"num_retracted_reqs", float64(st.Preemptions)},
	} {
		p.one("sglang:"+m.name, "gauge", m.v)
	}
}

func (p *page) sglCounters(st *core.Stats, pair *pairing) {
	for _, m := range []struct {
		name string
		v    int64
	}{
		{"num_bootstrap_failed_reqs_total", pair.failedBootstraps},
		{"num_transfer_failed_reqs_total", pair.failedTransfers + st.FailedTransfers},
		{"num_prefill_retries_total", 0},
		{"num_aborted_requests_total", st.Aborted},
		{"prompt_tokens_total", st.Prompt},
		{"generation_tokens_total", st.Generated},
		{"cached_tokens_total", st.LocalHit},
		{"num_requests_total", st.Stopped + st.Length + st.Failed + st.Aborted + pair.unscheduled},
	} {
		p.one("sglang:"+m.name, "counter", float64(m.v))
	}
}

func (p *page) sglHistograms(st *core.Stats) {
	for _, h := range []struct {
		name string
		h    core.Hist
	}{
		{"time_to_first_token_seconds", st.FirstToken},
		{"inter_token_latency_seconds", st.InterToken},
		{"request_time_per_output_token_seconds", st.PerToken},
		{"e2e_request_latency_seconds", st.EndToEnd},
		{"queue_time_seconds", st.Queue},
		{"kv_transfer_latency_ms", st.Transfer.Scaled(1e3)},
		{"kv_transfer_total_mb", st.Bytes.Scaled(1.0 / (1 << 20))},
		{"kv_transfer_speed_gb_s", core.Hist{}},
		{"kv_transfer_bootstrap_ms", core.Hist{}},
		{"kv_transfer_alloc_ms", core.Hist{}},
	} {
		p.histogram("sglang:"+h.name, &h.h)
	}
	stages := p.labels
	p.labels += `,stage="prefill_forward"`
	p.histogram("sglang:per_stage_req_latency_seconds", &st.Prefill)
	p.labels = stages
}

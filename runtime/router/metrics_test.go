package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestMetricsAgreeWithTheState(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	for range 3 {
		if a := b.complete(body(false, 4)); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	b.complete(`{"prompt":5}`)
	resp, err := http.Get(b.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	for _, want := range []string{
		`narwhal_contract_info{contract="metrics",version="2"} 1`, "narwhal_offered_total 4", "narwhal_served_total 3", "narwhal_slo_met_total 3", "narwhal_invalid_requests_total 1",
		`narwhal_failed_total{reason="no_engine"} 0`, `narwhal_refused_total{cause="slot_wait"} 0`, `narwhal_instance_role{iid="p0",role="prefill"} 1`,
		`narwhal_flips_total{by="reactive",to="prefill"} 0`, `narwhal_ttft_seconds_count{slo="2"} 3`, `narwhal_ttft_seconds_bucket{slo="2",le="0.05"}`, `narwhal_slo_seconds{metric="tpot",slo="0.1"} 0.1`,
		"narwhal_router_ready 1", "narwhal_decode_tokens_observed_total 12", `narwhal_resident_requests{iid="d0",phase="decode"} 0`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no line %q", want)
		}
	}
	if t.Failed() {
		t.Log(string(raw))
	}
}

// BenchmarkScrape measures one plain scrape of a fleet of 16 engines.
func BenchmarkScrape(b *testing.B) {
	r := offline(b, 8, 8)
	q, err := http.NewRequest(http.MethodGet, "/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.metrics.serve(sink{http.Header{}}, q)
	}
}

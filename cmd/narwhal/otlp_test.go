package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// spanSink is an OTLP collector.
type spanSink struct {
	mu      sync.Mutex
	spans   []*tracepb.Span
	service string
	raw     []byte
	bad     int
}

func (c *spanSink) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	b, err := io.ReadAll(q.Body)
	var req collector.ExportTraceServiceRequest
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(b, &req) != nil {
		c.bad++
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.raw = append(c.raw, b...)
	for _, r := range req.GetResourceSpans() {
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func attributeOf(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// TestTracesReachACollector sends one request through a router with a collector and reads
// the spans of both legs from the wire.
func TestTracesReachACollector(t *testing.T) {
	p := newPlainFleet(t)
	sink := &spanSink{}
	server := httptest.NewServer(sink)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	a := &app{out: io.Discard, err: io.Discard}
	cfg, err := a.routerConfig(t.Context(), serveFlags{fleet: []string{p.fleet}, listen: "127.0.0.1:0", level: "info", grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := traced(t.Context(), &cfg)
	if err != nil || cfg.Tracer == nil {
		t.Fatal(err)
	}
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const traceID, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const secret = "sk-do-not-trace-me"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+"/v1/completions", strings.NewReader(`{"prompt":"a whale sings","max_tokens":4}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", "00-"+traceID+"-"+parent+"-01")
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	sink.mu.Lock()
	defer sink.mu.Unlock()
	byName := map[string]*tracepb.Span{}
	for _, s := range sink.spans {
		byName[s.GetName()] = s
		if got := hex.EncodeToString(s.GetTraceId()); got != traceID {
			t.Errorf("%s is of trace %s", s.GetName(), got)
		}
	}
	root := byName["narwhal.request"]
	if root == nil || sink.bad > 0 || len(sink.spans) != 4 || sink.service != "narwhal" || hex.EncodeToString(root.GetParentSpanId()) != parent {
		t.Fatalf("%d spans, %d bad, service %q, root %v", len(sink.spans), sink.bad, sink.service, root)
	}
	for name, engine := range map[string]string{"narwhal.admission": "", "narwhal.prefill": "p0", "narwhal.decode": "d0"} {
		s := byName[name]
		if s == nil || string(s.GetParentSpanId()) != string(root.GetSpanId()) || attributeOf(s, "narwhal.engine") != engine {
			t.Errorf("%s: %v", name, s)
			continue
		}
		if s.GetStartTimeUnixNano() < root.GetStartTimeUnixNano()-uint64(1e7) || s.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() {
			t.Errorf("%s lies outside its request", name)
		}
	}
	if attributeOf(root, "narwhal.terminal") != "completed" || root.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("root %v", root)
	}
	for _, private := range []string{"a whale sings", secret} {
		if strings.Contains(string(sink.raw), private) {
			t.Errorf("the spans hold %q", private)
		}
	}
}

func TestNoTracesWithoutAnEndpoint(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	var cfg router.Config
	stop, err := traced(t.Context(), &cfg)
	if err != nil || cfg.Tracer != nil {
		t.Fatalf("%v, %v", cfg.Tracer, err)
	}
	stop()
}

// TestACollectorThatIsGoneHoldsNothing ends in time without one.
func TestACollectorThatIsGoneHoldsNothing(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/v1/traces")
	var cfg router.Config
	stop, err := traced(t.Context(), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, s := cfg.Tracer.Start(t.Context(), "narwhal.request", time.Now())
	s.End("failed")
	stop()
}

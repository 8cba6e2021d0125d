package router

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// recorder is a Tracer that keeps what it is told.
type recorder struct {
	mu    sync.Mutex
	spans []*recorded
}

type recorded struct {
	r             *recorder
	name, failure string
	parent        *recorded
	remote        string
	attrs         map[string]any
	ended         int
}

type recordedKey struct{}

func (r *recorder) Extract(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, recordedKey{}, &recorded{remote: h.Get("Traceparent")})
}

func (r *recorder) Inject(ctx context.Context, h http.Header) {
	if s, ok := ctx.Value(recordedKey{}).(*recorded); ok {
		h.Set("Traceparent", s.name)
	}
}

func (r *recorder) Start(ctx context.Context, name string, _ time.Time, attrs ...Attr) (context.Context, Span) {
	s := &recorded{r: r, name: name, attrs: map[string]any{}}
	s.parent, _ = ctx.Value(recordedKey{}).(*recorded)
	s.Set(attrs...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
	return context.WithValue(ctx, recordedKey{}, s), s
}

func (s *recorded) Set(attrs ...Attr) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, a := range attrs {
		s.attrs[a.Key] = a.Value
	}
}

func (s *recorded) End(failure string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.failure = failure
	s.ended++
}

func (s *recorded) TraceID() string { return "4bf92f3577b34da6a3ce929d0e0e4736" }

func TestSpansOfARequest(t *testing.T) {
	rec := &recorder{}
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Tracer = rec })
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	req, err := http.NewRequestWithContext(limit(t), http.MethodPost, b.url+"/v1/completions", strings.NewReader(string(asJSON(t, body(false, 4)))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", parent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	eventually(t, "a finished request", func() bool { return b.state().Served == 1 })
	rows := b.rows()
	if len(rows) != 1 || rows[0].TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Fatalf("%+v", rows)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	byName := map[string]*recorded{}
	for _, s := range rec.spans {
		byName[s.name] = s
		if s.ended != 1 || s.failure != "" {
			t.Errorf("%s ended %d times, %q", s.name, s.ended, s.failure)
		}
	}
	root := byName[spanRequest]
	if len(rec.spans) != 4 || root == nil || root.parent.remote != parent || root.attrs["narwhal.terminal"] != "completed" || root.attrs["narwhal.output_tokens"] != 4 {
		t.Fatalf("%+v of %d spans", root, len(rec.spans))
	}
	for _, name := range []string{spanAdmission, spanPrefill, spanDecode} {
		if s := byName[name]; s == nil || s.parent != root || s.attrs["narwhal.attempt"] != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if byName[spanPrefill].attrs["narwhal.engine"] != "p0" || byName[spanDecode].attrs["narwhal.engine"] != "d0" {
		t.Error("a leg names another engine")
	}
}

func TestAFailedLegSaysWhy(t *testing.T) {
	rec := &recorder{}
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Tracer = rec; c.Fleet.Serving.MaxAttempts = 1 })
	b.engine("p0").Stop()
	if a := b.complete(body(false, 4)); a.status < 500 {
		t.Fatal(a.status)
	}
	b.rows()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, s := range rec.spans {
		want := map[string]string{spanPrefill: "failed", spanRequest: "failed: engine_unreachable"}[s.name]
		if s.failure != want || want != "" && s.attrs["narwhal.reason"] != "engine_unreachable" {
			t.Errorf("%s: %q, %v", s.name, s.failure, s.attrs)
		}
	}
}

func TestLegsCarryTheirSpans(t *testing.T) {
	if (&settings{}).carry() != nil {
		t.Error("without a tracer legs carry something")
	}
	var mu sync.Mutex
	carried := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		carried = q.Header.Get("Traceparent")
		http.Error(w, "{}", http.StatusInternalServerError)
	}))
	defer s.Close()
	set := &settings{Config: Config{Tracer: &recorder{}}}
	c, err := engine.NewClient(s.URL, engine.Options{Carry: set.carry()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, want := range map[string]string{"": "", spanPrefill: spanPrefill} {
		ctx := limit(t)
		if name != "" {
			var span Span
			ctx, span = set.Tracer.Start(ctx, name, time.Now())
			ctx = context.WithValue(ctx, spanKey{}, span)
		}
		resp, err := c.Do(ctx, "/v1/completions", []byte("{}"), "x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		mu.Lock()
		if carried != want {
			t.Errorf("a leg of %q carried %q", name, carried)
		}
		mu.Unlock()
	}
}

func TestExemplarsOnlyWithATraceAndWhenAsked(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Tracer = &recorder{} })
	if a := b.complete(body(false, 4)); a.status != 200 {
		t.Fatal(a.body)
	}
	read := func(accept string) string {
		req, err := http.NewRequestWithContext(limit(t), http.MethodGet, b.url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		return fetch(t, req)
	}
	const exemplar = `# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"}`
	eventually(t, "an exemplar", func() bool { return strings.Contains(read("application/openmetrics-text"), exemplar) })
	if strings.Contains(read("*/*"), "trace_id") {
		t.Error("the plain text has exemplars")
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fetch(t *testing.T, req *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

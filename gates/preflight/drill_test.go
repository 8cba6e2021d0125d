package preflight

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

func TestLook(t *testing.T) {
	ask := func(s *simulated.Server) Looked {
		t.Helper()
		l, err := look(limited(t), LookRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", PaceTokens: 512})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := ask(boot(t, nil))
	if len(l.Failed) > 0 || l.Version == "" || l.Started == 0 || l.Root != "tiny" || l.Context != 4096 || l.Block != 16 || l.Dtype == "" || l.Tokens == 0 || len(l.TokenDigest) != 64 || len(l.Pace) < paceRuns || len(l.Pace) > mostPace || l.best() < 0.02 {
		t.Errorf("saw %+v", l)
	}
	other := ask(boot(t, func(c *simulated.Config) { c.BlockSize, c.Root, c.EngineVersion = 64, "/other", "0.1.0" }))
	if other.Block != 64 || other.Root != "/other" || other.Version != "0.1.0" || other.TokenDigest != l.TokenDigest {
		t.Errorf("saw %+v", other)
	}
	short := ask(boot(t, func(c *simulated.Config) { c.MaxModelLen = 100 }))
	if short.PaceTokens != 99 || len(short.Failed) > 0 {
		t.Errorf("saw %+v", short)
	}
}

// TestLookAtNothing records what does not answer instead of failing.
func TestLookAtNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	_ = l.Close()
	got, err := look(limited(t), LookRequest{URL: url, Dialect: "vllm", Model: "tiny"})
	if err != nil || got.Failed[checkReach] == "" {
		t.Errorf("saw %+v, %v", got, err)
	}
	if got, err := look(limited(t), LookRequest{URL: answering(t, 200, "{}"), Dialect: "vllm", Model: "tiny"}); err != nil || got.Failed[checkLayout] == "" || got.Failed[checkIdentity] == "" || got.Failed[checkTokenize] == "" {
		t.Errorf("saw %+v, %v", got, err)
	}
	if _, err := look(limited(t), LookRequest{URL: url, Dialect: "morse"}); err == nil {
		t.Error("a dialect that nobody speaks was asked")
	}
}

func drilled(s *simulated.Server) DrillRequest {
	return DrillRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Tokens: 200, LimitS: 10}
}

func TestAbort(t *testing.T) {
	a, err := abort(limited(t), drilled(boot(t, nil)))
	if err != nil || !a.stopped() || a.Asked < 3000 || a.Generated < 1 || a.Generated > 1000 {
		t.Errorf("saw %+v, %v", a, err)
	}
	s := boot(t, nil)
	if err := s.Inject(simulated.Injection{Kind: "error", Count: -1}); err != nil {
		t.Fatal(err)
	}
	if a, err := abort(limited(t), drilled(s)); err == nil {
		t.Errorf("an engine that refuses: %+v", a)
	}
}

// TestAbortThroughAProxy keeps the engine's side of the connection open after its client left.
func TestAbortThroughAProxy(t *testing.T) {
	s := boot(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequest(r.Method, s.URL()+r.URL.Path, r.Body) // without r's context: it outlives the client
		if err != nil {
			return
		}
		req.Header = r.Header
		req.ContentLength = r.ContentLength
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { s.Stop(); _ = srv.Close(); <-done })
	q := drilled(s)
	q.URL = "http://" + l.Addr().String()
	a, err := abort(limited(t), q)
	if err != nil || a.stopped() || a.Freed {
		t.Errorf("saw %+v, %v", a, err)
	}
}

func TestExpire(t *testing.T) {
	x, err := expire(limited(t), drilled(boot(t, func(c *simulated.Config) { c.LeaseS = 0.7 })))
	if err != nil || !x.Freed || x.Counted != 1 || x.Pinned <= 0 || x.Seconds < 0.5 {
		t.Errorf("saw %+v, %v", x, err)
	}
	q := drilled(boot(t, func(c *simulated.Config) { c.LeaseS = 300 }))
	q.LimitS = 0.5
	if x, err := expire(limited(t), q); err != nil || x.Freed || x.After <= 0 || x.Counted != 0 {
		t.Errorf("a lease without end: %+v, %v", x, err)
	}
	s := boot(t, nil)
	if err := s.Inject(simulated.Injection{Kind: "drop-handoff", Count: 1}); err != nil {
		t.Fatal(err)
	}
	if x, err := expire(limited(t), drilled(s)); err == nil {
		t.Errorf("no handoff: %+v", x)
	}
	if x, err := expire(limited(t), DrillRequest{Dialect: "sglang"}); err != nil || x.Skipped == "" || x.Freed {
		t.Errorf("a dialect without leases: %+v, %v", x, err)
	}
	if _, err := expire(limited(t), DrillRequest{Dialect: "morse"}); err == nil || !strings.Contains(err.Error(), "morse") {
		t.Errorf("got %v", err)
	}
}

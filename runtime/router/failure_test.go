package router

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func body(stream bool, tokens int) map[string]any {
	return map[string]any{"prompt": prompt, "max_tokens": tokens, "ignore_eos": true, "stream": stream}
}

// Each case plays one failure before the first output byte on one of two engines of a role;
// the one retry must hide it.
func TestOneRetryHidesAFailureBeforeTheFirstByte(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     string // role that fails
		in     simulated.Injection
		reason model.Reason
		phase  string
	}{
		{"prefill busy", "p", simulated.Injection{Kind: "busy"}, model.ReasonOverloaded, "prefill"},
		{"no handoff", "p", simulated.Injection{Kind: "drop-handoff"}, model.ReasonInvalid, "prefill"},
		{"handoff without host", "p", simulated.Injection{Kind: "corrupt-handoff", Field: "remote_host"}, model.ReasonInvalid, "prefill"},
		{"flat blocks", "p", simulated.Injection{Kind: "corrupt-handoff", Field: "remote_block_ids", Value: []byte("[1,2,3]")}, model.ReasonInvalid, "prefill"},
		{"transfer fails", "d", simulated.Injection{Kind: "read-failure"}, model.ReasonEngine, "decode"},
		{"decode error", "d", simulated.Injection{Kind: "error", After: 0}, model.ReasonEngine, "decode"},
		{"decode ends early", "d", simulated.Injection{Kind: "eof", After: 0}, model.ReasonEngine, "decode"},
		{"decode refuses", "d", simulated.Injection{Kind: "refuse"}, model.ReasonUnreach, "decode"},
		{"decode stalls", "d", simulated.Injection{Kind: "stall", After: 0}, model.ReasonTimeout, "decode"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := startBed(t, 2, 2, quick(), func(cfg *Config) {
				cfg.Fleet.Engine.FirstTokenTimeoutS = 0.5
				cfg.Fleet.Recovery.LivenessEvery = 0
			})
			want := text(t, post(t, limit(t), b.engine("p1").URL()+"/v1/completions", body(false, 8)).body)
			// Only one of the two fails, and ties are broken by hash: play both until it was hit.
			b.inject(c.at+"0", c.in)
			hit := false
			for i := 0; i < 40 && !hit; i++ {
				a := b.complete(body(i%2 == 0, 8))
				if a.status != 200 {
					t.Fatalf("request %d: %d %s", i, a.status, a.body)
				}
				got := ""
				if i%2 == 0 {
					evs := events(t, a.body)
					for _, e := range evs[:len(evs)-1] {
						got += text(t, e)
					}
				} else {
					got = text(t, a.body)
				}
				if got != want {
					t.Fatalf("request %d: %q, want %q", i, got, want)
				}
				hit = b.state().Serving["retry_attempts"].(float64) > 0
			}
			if !hit {
				t.Fatal("the failure was never met")
			}
			for _, row := range b.rows() {
				if len(row.Failures) > 0 {
					f := row.Failures[0]
					if row.Attempts != 2 || f.Reason != c.reason || f.Phase != c.phase || !f.Retry || row.Terminal != journal.Completed {
						t.Errorf("attempts %d, %+v", row.Attempts, f)
					}
				}
			}
		})
	}
}

func TestFailureAfterTheFirstByteIsOneTerminalEvent(t *testing.T) {
	for _, c := range []struct{ name, kind string }{{"error event", "error"}, {"end of file", "eof"}, {"connection reset", "reset"}, {"silence", "stall"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := startBed(t, 1, 1, quick(), func(cfg *Config) { cfg.Fleet.Engine.DecodeReadTimeoutS = 0.3 })
			b.inject("d0", simulated.Injection{Kind: c.kind, After: 3})
			a := b.complete(body(true, 20))
			evs := events(t, a.body)
			last := evs[len(evs)-1]
			if a.status != 200 || len(evs) < 2 || !strings.Contains(last, `"type":"decode","code":"failed"`) || strings.Contains(a.body, "[DONE]") || strings.Count(a.body, `"error"`) != 1 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			rows := b.rows()
			if len(rows) != 1 || rows[0].Terminal != journal.Failed || rows[0].Attempts != 1 || *rows[0].Status != 200 || rows[0].Failures[0].RetryReason != outputStarted {
				t.Errorf("rows %+v", rows)
			}
		})
	}
}

func TestEveryEngineBusyIs429(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	b.inject("p0", simulated.Injection{Kind: "busy", Count: -1})
	if a := b.complete(body(false, 4)); a.status != 200 {
		t.Errorf("the other engine is free: %d %s", a.status, a.body)
	}
	b.inject("d0", simulated.Injection{Kind: "busy", Count: -1})
	a := b.complete(body(false, 4))
	if a.status != 429 || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestEngineDeathEjectsAndReturnReadmits(t *testing.T) {
	b := startBed(t, 2, 2, quick(), func(c *Config) { c.Fleet.Engine.FirstTokenTimeoutS = 1 })
	b.inject("d1", simulated.Injection{Kind: "refuse"})
	for i := range 12 {
		if a := b.complete(body(i%2 == 0, 4)); a.status != 200 {
			t.Fatalf("request %d: %d %s", i, a.status, a.body)
		}
	}
	eventually(t, "d1 ejected", func() bool { return len(b.state().Ejected) == 1 })
	var h map[string]any
	if b.get("/health", &h); h["available_instances"] != 3.0 {
		t.Errorf("health %v", h)
	}
	off := false
	b.inject("d1", simulated.Injection{Kind: "refuse", On: &off})
	eventually(t, "d1 readmitted", func() bool { return len(b.state().Ejected) == 0 })
	for range 8 {
		if a := b.complete(body(false, 4)); a.status != 200 {
			t.Fatalf("after readmission: %d %s", a.status, a.body)
		}
	}
}

// A process that took the place of another has no profile: it must stay out.
func TestAnotherProcessStaysOut(t *testing.T) {
	b := startBed(t, 1, 2, quick())
	addr := b.engine("d1").Addr()
	b.engine("d1").Kill()
	eventually(t, "d1 ejected", func() bool { return len(b.state().Ejected) == 1 })
	ctx := limit(t)
	b.startEngine(ctx, quick(), addr)
	eventually(t, "refused for its generation", func() bool {
		for _, e := range b.state().Breaker["ejections"].([]any) {
			if e.(map[string]any)["cause"] == causeGeneration {
				return true
			}
		}
		return false
	})
	if a := b.complete(body(false, 4)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestNoEnginesAtAll(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	for _, e := range b.engines {
		e.Kill()
	}
	eventually(t, "not ready", func() bool { return b.get("/ready", nil) == 503 })
	a := b.complete(body(false, 4))
	if a.status != 503 || !strings.Contains(a.body, `"code":"backend_unavailable"`) || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if rows := b.rows(); rows[0].Terminal != journal.Rejected || rows[0].ReadinessReason == "" {
		t.Errorf("row %+v", rows[0])
	}
}

func TestClientLeavingAbortsBothLegs(t *testing.T) {
	slow := quick()
	slow.DecodeD = 0.05
	b := startBed(t, 1, 1, slow)
	ctx, cancel := context.WithCancel(limit(t))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(`{"prompt":"hello there","max_tokens":400,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	eventually(t, "engine idle", func() bool { return b.engine("d0").State().Calls == 0 })
	eventually(t, "request gone", func() bool { s := b.state(); return s.Cancelled == 1 && s.Resident["d0"]["decode"] == 0 })
	rows := b.rows()
	if rows[0].Terminal != journal.Cancelled || rows[0].CancelledPhase != phaseDecode {
		t.Errorf("row %+v", rows[0])
	}
}

func TestDeadlineBeforeHeadersIs504(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.RequestTimeoutS = 0.4
		c.Fleet.Engine.Tokenize = false
	})
	b.inject("p0", simulated.Injection{Kind: "freeze"})
	a := b.complete(body(true, 4))
	if a.status != 504 || !strings.Contains(a.body, `{"error":{"message":"original request deadline expired","type":"request_expired"}}`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	off := false
	b.inject("p0", simulated.Injection{Kind: "freeze", On: &off})
	if rows := b.rows(); rows[0].Terminal != journal.Expired {
		t.Errorf("row %+v", rows[0])
	}
}

func TestInFlightLimit(t *testing.T) {
	slow := quick()
	slow.DecodeD = 0.05
	b := startBed(t, 1, 1, slow, func(c *Config) { c.MaxConcurrent = 1 })
	ctx, cancel := context.WithCancel(limit(t))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(`{"prompt":"hello","max_tokens":400,"ignore_eos":true}`))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "one in flight", func() bool { return b.state().Admission["inflight"] == 1.0 })
	a := b.complete(body(false, 4))
	if a.status != 429 || !strings.Contains(a.body, "router in-flight limit reached") || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", a.status, a.body)
	}
	cancel()
	<-done
}

func TestStopEndsOpenStreamsWithAnEvent(t *testing.T) {
	slow := quick()
	slow.DecodeD = 0.05
	var log lockedText
	b := startBed(t, 1, 1, slow, func(c *Config) {
		c.Fleet.Serving.GracefulTimeoutS = 0.2
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	got := make(chan answer, 1)
	go func() {
		got <- post(t, limit(t), b.url+"/v1/completions", `{"prompt":"hello","max_tokens":4000,"ignore_eos":true,"stream":true}`)
	}()
	eventually(t, "streaming", func() bool { return b.state().Resident["d0"]["decode"] == 1 })
	rows := b.rows()
	a := <-got
	if !strings.Contains(a.body, `"code":"expired"`) || strings.Contains(a.body, "[DONE]") {
		t.Errorf("stream ended with %s", a.body[max(0, len(a.body)-200):])
	}
	if len(rows) != 1 || rows[0].Terminal != journal.Expired || *rows[0].Reason != model.ReasonShutdown {
		t.Errorf("rows %+v", rows)
	}
	for _, line := range []string{`msg="router stops" running=1 grace_s=0.2`, `msg="router ends requests that did not finish in time" requests=1`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("no %s in\n%s", line, log.String())
		}
	}
}

// The death of the only decode engine costs a retry on the other one, not the request.
func TestDeadDecodeEngineLeavesItsProducer(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	for i := range 8 {
		b.inject("d0", simulated.Injection{Kind: "reset", Count: -1})
		if a := b.complete(body(i%2 == 0, 4)); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		b.inject("d0", simulated.Injection{Kind: "clear"})
	}
}

package router

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// These tests bring about rows of errors_table.go and events that no other test does.

func (b *testbed) expect(a answer, status int, part string) {
	b.t.Helper()
	if a.status != status || !strings.Contains(a.body, part) {
		b.t.Errorf("%d %s, want %d with %s", a.status, a.body, status, part)
	}
}

func TestFaultsOfBodies(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	b.expect(b.complete(`{"messages":[1]}`), 400, "every item in messages must be an object")
	c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	b.expect(answer{status: resp.StatusCode, body: string(raw)}, 400, "the request body ended early")
	s := sglangBed(t, "prefill", "decode")
	s.expect(post(t, limit(t), s.url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"return_token_ids":true}`), 400, "is not served for chat by this backend")
}

func TestALargeAnswerIsRefused(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Fleet.Serving.MaxResponseBytes = 1 << 15 })
	b.expect(b.complete(body(false, 400)), 502, "Response exceeds the configured limit")
}

func TestAnExpiredHandoffIsNotUsed(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.MaxAttempts, c.HTTP.KeepAlive, c.Fleet.Engine.Tokenize = 1, 50*time.Millisecond, false
	})
	b.router.own.do(func() { b.router.own.node("p0").facts.lease = 1e-6 })
	b.expect(b.complete(body(false, 4)), 504, `"code":"handoff_expired"`)
	thaw := b.freeze("p0")
	time.AfterFunc(300*time.Millisecond, thaw)
	b.expect(b.complete(body(true, 4)), 200, `"type":"prefill","code":"expired"`)
}

// freeze stops an engine's answers until the result is called.
func (b *testbed) freeze(iid string) (thaw func()) {
	b.inject(iid, simulated.Injection{Kind: "freeze"})
	off := false
	e := b.engine(iid)
	return func() { _ = e.Inject(simulated.Injection{Kind: "freeze", On: &off}) }
}

func TestFaultsAfterAComment(t *testing.T) {
	b := startBed(t, 1, 2, quick(), func(c *Config) {
		c.HTTP.KeepAlive, c.Fleet.Serving.PrefillTimeoutS, c.Fleet.Recovery.LivenessEvery = 20*time.Millisecond, 0.4, 0
		c.Fleet.Engine.Tokenize = false
	})
	b.router.set.attempts = 1
	defer b.freeze("p0")()
	b.expect(b.complete(body(true, 4)), 200, `"type":"prefill","code":"failed"`)
	b.router.set.attempts = 2
	done := make(chan answer, 1)
	go func() { done <- b.complete(body(true, 4)) }()
	eventually(t, "a prefill", func() bool { return b.state().Resident["p0"]["prefill"] == 1 })
	b.expect(post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"wave":true}`), 200, `"active":true`)
	b.expect(<-done, 200, `"type":"decode","code":"failed"`)
	rows := b.rows()
	if r := rows[len(rows)-1]; r.Terminal != "rejected" {
		t.Errorf("row %+v", r)
	}
}

func TestNoConnectionIsFree(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.MaxConcurrent, c.Fleet.Engine.PoolTimeoutS, c.Fleet.Engine.Tokenize = 1, 0.1, false })
	thaw := b.freeze("d0")
	done := make(chan answer, 1)
	go func() { done <- b.complete(body(false, 4)) }()
	eventually(t, "a leg", func() bool { return b.state().Serving["decode_attempts"] == 1.0 })
	b.expect(post(t, limit(t), b.url+"/tokenize", `{"prompt":"x"}`), 504, `"type":"admission"`)
	thaw()
	b.expect(<-done, 200, "choices")
}

func TestASlowCountIsNoAnswer(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) {
		c.Fleet.Engine.TokenizeTimeoutS, c.Fleet.Engine.HealthTimeoutS, c.Fleet.Recovery.LivenessEvery = 0.1, 0.1, 0
	})
	defer b.freeze("d0")()
	b.expect(post(t, limit(t), b.url+"/tokenize", `{"prompt":"x"}`), 504, `"type":"admission"`)
}

func TestAStopBeforeTheAnswer(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Fleet.Serving.GracefulTimeoutS, c.Fleet.Engine.Tokenize = 0.1, false })
	defer b.freeze("p0")()
	done := make(chan answer, 1)
	go func() { done <- b.complete(body(false, 4)) }()
	eventually(t, "a prefill", func() bool { return b.state().Resident["p0"]["prefill"] == 1 })
	b.stop()
	b.expect(<-done, 503, `"code":"shutdown"`)
}

func TestRareEvents(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	o := b.router.own
	o.do(func() {
		o.alarm(o.node("p0"), alarmExpired, 2)
		for range o.set.Fleet.Controller.MonitorFailureLimit {
			o.degrade("controller")
		}
	})
	if reason := o.view.Load().reason(); reason != "monitoring degraded: controller panic" {
		t.Errorf("reason %q", reason)
	}
	o.do(func() { o.degrade("") })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.expect(post(t, ctx, b.url+"/v1/completions", body(false, 4)), 200, "choices")
}

func TestAMessageHasItsForm(t *testing.T) {
	for _, c := range []struct {
		form, s string
		want    bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a…", "abc", true}, {"… is x", "rid is x", true}, {"… is x", "rid is xy", false}, {"…", "", true},
		{"a … c …", "a b c d", true}, {"a … c …", "a b d", false},
	} {
		if got := like(c.form, c.s); got != c.want {
			t.Errorf("%q of form %q: %v", c.s, c.form, got)
		}
	}
}

package router

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// The tests named TestRow… show one by one that a known weakness of the reference is cured
// here; the number is that of its list.

// A router that came late, as after a pause of its host, refuses nobody for it. The recorded
// limit is a quarter of the first-token promise; here it is 5 ms.
func TestRow02LateTimersRefuseNobody(t *testing.T) {
	b := startReplay(t, rolesF1, false, func(c *Config) {
		c.Fleet.Serving.Admission, c.Fleet.SLO.TTFTS = "open", 0.02
	})
	pending := b.begin(completion(`{"prompt":"x","max_tokens":2,"fault":{"kind":"gate_prefill"}}`))
	b.seen("the pending request", at("p0", "-a1-prefill"))
	b.router.own.do(func() { <-time.After(50 * time.Millisecond) }) // the lateness
	c := caseNamed(t, "errors-saturated.jsonl", "saturated")
	diff := replayDiff(c.recorded(t), b.send(c.Request), b.names())
	if judge := judgeCase(c.Case, strings.Join(diff, "; ")); judge != "" {
		t.Error(judge)
	}
	b.open()
	if a := <-pending; a.status != 200 {
		t.Errorf("pending: %d %s", a.status, a.body)
	}
}

// What an engine says against a request is said to the client, without the engine's address,
// and never counts against the engine.
func TestRow03EngineClientErrorsPassThrough(t *testing.T) {
	b := startReplay(t, rolesF1, false, func(c *Config) { c.Fleet.Recovery.EjectAfter = 1 })
	for _, status := range []int{400, 404, 413, 422} {
		a := b.complete(`{"prompt":"x","max_tokens":4,"fault":{"kind":"prefill_status","status":%d}}`, status)
		var e struct {
			Error struct{ Message, Type string }
		}
		if json.Unmarshal([]byte(a.body), &e) != nil || a.status != status || e.Error.Type != "invalid_request_error" {
			t.Errorf("%d became %d %s", status, a.status, a.body)
		}
		if !strings.HasPrefix(e.Error.Message, "ask ") || strings.Contains(a.body, "://") {
			t.Errorf("message of %d: %s", status, e.Error.Message)
		}
	}
	if a := b.complete(`{"prompt":"x","max_tokens":4,"fault":{"kind":"decode_status","status":422}}`); a.status != 422 {
		t.Errorf("refused decode: %d %s", a.status, a.body)
	}
	if a := b.complete(`{"prompt":"x 💣","max_tokens":4}`); a.status != 400 {
		t.Errorf("refused count: %d %s", a.status, a.body)
	}
	s := b.state()
	for _, by := range s.Breaker["failures"].(map[string]any) {
		for class, n := range by.(map[string]any) {
			if n != 0.0 {
				t.Errorf("%s counts %v", class, n)
			}
		}
	}
	if len(s.Ejected) != 0 || s.Invalid != 6 || s.Serving["retry_attempts"] != 0.0 {
		t.Errorf("ejected %v, invalid %d, retries %v", s.Ejected, s.Invalid, s.Serving["retry_attempts"])
	}
}

func TestRow04BusyEverywhereIs429(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	for _, stream := range []bool{false, true} {
		a := b.complete(`{"prompt":"x","max_tokens":4,"stream":%v,"fault":{"kind":"prefill_429"}}`, stream)
		if a.status != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"type":"server_overloaded_error"`) {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
	}
}

// A prefill without a handoff, or with one that would break its reader, is tried elsewhere
// and has a reason of its own.
func TestRow05UnreadableHandoffIsRetried(t *testing.T) {
	for _, fault := range []string{"prefill_no_handoff", "old_handoff"} {
		b := startReplay(t, rolesF1, false)
		if a := b.complete(`{"prompt":"x","max_tokens":4,"fault":{"kind":%q,"iid":"p0"}}`, fault); a.status != 200 || text(t, a.body) != "Hello, na" {
			t.Errorf("%s: %d %s", fault, a.status, a.body)
		}
		if a := b.complete(`{"prompt":"x","max_tokens":4,"fault":{"kind":%q}}`, fault); a.status != 502 || !strings.Contains(a.body, `"code":"prefill"`) {
			t.Errorf("%s everywhere: %d %s", fault, a.status, a.body)
		}
		rows := b.rows()
		if f := rows[0].Failures; len(f) != 1 || f[0].Reason != model.ReasonInvalid || f[0].RetryReason != retryAllowed {
			t.Errorf("%s: %+v", fault, f)
		}
		if rows[1].Terminal != journal.Failed || rows[1].Reason == nil || *rows[1].Reason != model.ReasonInvalid {
			t.Errorf("%s everywhere: %+v", fault, rows[1])
		}
	}
}

// The requests of an engine that died are repeated although the shared budget is empty.
func TestRow06DeathCostsNoCredit(t *testing.T) {
	b := startReplay(t, rolesF1, false, func(c *Config) { c.Fleet.Serving.RetryBudget = 0 })
	b.kill("p0")
	if a := b.complete(`{"prompt":[1,2],"max_tokens":4}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if f := b.rows()[0].Failures; len(f) != 1 || f[0].Prefill == nil || *f[0].Prefill != "p0" || f[0].RetryReason != retryAllowed {
		t.Errorf("%+v", f)
	}
}

// A refused decode connection says nothing about the producer: it serves the retry too.
func TestRow16RefusedDecodeKeepsTheProducer(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	b.kill("d0")
	if a := b.complete(`{"prompt":[1,2],"max_tokens":4}`); a.status != 200 || !strings.Contains(a.body, "-a2-decode") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	row := b.rows()[0]
	if row.Attempts != 2 || *row.Prefill != "p0" || *row.Decode != "d1" {
		t.Errorf("attempts %d on %v and %v", row.Attempts, row.Prefill, row.Decode)
	}
}

// A failed count costs exactness only; an exact prompt is not counted at all.
func TestRow17FailedCountFallsBackToTheEstimate(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	b.mu.Lock()
	b.counts = 1
	b.mu.Unlock()
	for _, prompt := range []string{`"Say hello to the whale"`, `[1,2,3]`} {
		if a := b.complete(`{"prompt":%s,"max_tokens":4}`, prompt); a.status != 200 {
			t.Errorf("%s: %d %s", prompt, a.status, a.body)
		}
	}
	counts := 0
	for _, l := range b.received() {
		if l.path == "/tokenize" {
			counts++
		}
	}
	rows := b.rows()
	if counts != 1 || rows[0].InputLen != 5 || rows[1].InputLen != 3 || len(rows[0].Failures) != 0 {
		t.Errorf("%d counts, lengths %d and %d, %+v", counts, rows[0].InputLen, rows[1].InputLen, rows[0].Failures)
	}
}

// An engine without an id, or with an address that is none, is refused before anything starts.
func TestRow23BadAddressesAreRefused(t *testing.T) {
	for _, c := range []struct {
		engine fleet.Engine
		want   string
	}{
		{fleet.Engine{IID: "", URL: "http://h:1", Role: "decode"}, "is empty or repeated"},
		{fleet.Engine{IID: "x", URL: "ftp://h:1", Role: "decode"}, "want http or https"},
		{fleet.Engine{IID: "x", URL: "h:1", Role: "decode"}, "has no scheme"},
		{fleet.Engine{IID: "x", URL: "https://", Role: "decode"}, "has no host"},
	} {
		f := replayFleet(t)
		f.Engines = []fleet.Engine{c.engine}
		if err := Check(Config{Fleet: f, Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.engine, err)
		}
	}
}

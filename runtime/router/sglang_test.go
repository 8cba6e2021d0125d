package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// sglangBed is a router over SGLang engines in the given roles; "null" serves whole requests.
func sglangBed(t *testing.T, roles ...string) *testbed {
	t.Helper()
	return sglangBedOf(t, nil, roles...)
}

func sglangBedOf(t *testing.T, change tweak, roles ...string) *testbed {
	t.Helper()
	b := &testbed{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", JournalPath: b.journal, PrefixAffinity: true, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	cfg.Fleet.Engine.Backend = sglang.Name
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var rows []profile.Row
	for i, role := range roles {
		e, err := simulated.New(simulated.Config{Simulated: quick(), Model: modelName, SideChannel: "127.0.0.1:0", Dialect: sglang.Name,
			SGLang: simulated.SGLang{Role: role, RoleSwitch: true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Stop)
		b.engines = append(b.engines, e)
		entry := fleet.Engine{IID: fmt.Sprintf("e%d", i), URL: e.URL(), Role: fleet.RoleDecode}
		if role == "prefill" {
			entry.Role = fleet.RolePrefill
		}
		cfg.Fleet.Engines = append(cfg.Fleet.Engines, entry)
		c, err := engine.NewClient(e.URL(), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := sglang.New().Identity(ctx, c)
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, profile.NewRow(entry.IID, IdentityDigest(id), curveOf(quick()), profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	t.Cleanup(b.stop)
	return b
}

// idleSoon waits until no engine holds anything of a request.
func (b *testbed) idleSoon() {
	b.t.Helper()
	eventually(b.t, "engines are idle", func() bool {
		for _, e := range b.engines {
			if !e.Account().Idle() {
				return false
			}
		}
		return true
	})
}

// Split over a pair, the answer is that of one engine alone, streamed and buffered.
func TestSGLangPairAnswersAsOneEngine(t *testing.T) {
	whole := sglangBed(t, "null")
	pair := sglangBed(t, "prefill", "decode", "decode")
	for _, body := range []map[string]any{
		{"prompt": "whale song in the deep", "max_tokens": 12, "temperature": 0},
		{"prompt": "whale song in the deep", "max_completion_tokens": 9, "temperature": 0, "stream": true, "stream_options": map[string]any{"include_usage": true}},
		{"prompt": []string{"whale song in the deep"}, "max_tokens": 7, "temperature": 0},
		{"prompt": [][]int{{5, 6, 7, 8, 9}}, "max_tokens": 7, "temperature": 0},
	} {
		want, got := whole.complete(body), pair.complete(body)
		if want.status != 200 || got.status != 200 {
			t.Fatalf("%d %s\n%d %s", want.status, want.body, got.status, got.body)
		}
		if a, b := allText(t, want.body), allText(t, got.body); a != b || a == "" {
			t.Errorf("split %q, whole %q", b, a)
		}
	}
	for _, path := range []string{"/v1/chat/completions"} {
		body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "sing"}}, "max_tokens": 8, "temperature": 0}
		want, got := post(t, limit(t), whole.url+path, body), post(t, limit(t), pair.url+path, body)
		if got.status != 200 || text(t, want.body) != text(t, got.body) {
			t.Errorf("chat: %d %s, want %s", got.status, got.body, want.body)
		}
	}
	pair.idleSoon()
	for _, r := range pair.rows() {
		if !r.Crossed || r.Terminal != "completed" || r.TTFT == nil || r.OutputLen == nil || r.Attempts != 1 {
			t.Errorf("row %+v", r)
		}
	}
	for _, r := range whole.rows() {
		if r.Crossed || r.Terminal != "completed" {
			t.Errorf("row %+v", r)
		}
	}
}

// allText is the text of an answer of either form.
func allText(t *testing.T, body string) (s string) {
	t.Helper()
	if strings.HasPrefix(body, "{") {
		return text(t, body)
	}
	for _, e := range events(t, body) {
		if e != "[DONE]" && !strings.Contains(e, `"choices":[]`) {
			s += text(t, e)
		}
	}
	return s
}

// A leg that fails ends the other at once, and the request is retried with a new room.
func TestSGLangFailedLegEndsItsSibling(t *testing.T) {
	b := sglangBed(t, "prefill", "prefill", "decode")
	status, _ := json.Marshal(500)
	for _, e := range []string{"e0", "e1"} {
		b.inject(e, simulated.Injection{Kind: "leg1-status", Status: 500, Count: 1, Value: status})
	}
	start := time.Now()
	a := b.complete(map[string]any{"prompt": "whale", "max_tokens": 4})
	if a.status != 502 || !strings.Contains(a.body, `"code":"prefill"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the client waited %s", took)
	}
	if a := b.complete(map[string]any{"prompt": "whale", "max_tokens": 4}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.idleSoon()
}

func TestSGLangReservedFields(t *testing.T) {
	b := sglangBed(t, "prefill", "decode")
	for _, k := range []string{"rid", "bootstrap_host", "bootstrap_port", "bootstrap_room"} {
		if a := b.complete(map[string]any{"prompt": "x", k: "1"}); a.status != 400 || !strings.Contains(a.body, `"param":"`+k+`"`) {
			t.Errorf("%s: %d %s", k, a.status, a.body)
		}
	}
	if a := b.complete(map[string]any{"prompt": "x", "n": 2}); a.status != 400 {
		t.Errorf("n: %d %s", a.status, a.body)
	}
}

// A move of the controller switches the live process, and what was on it ends first.
func TestSGLangRoleSwitch(t *testing.T) {
	b := sglangBed(t, "prefill", "decode", "decode")
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.router.own.do(func() {
		b.router.own.move(control.Move{Engine: "e2", To: model.Prefill, By: control.ByReactive}, b.router.own.now())
	})
	eventually(t, "the role is switched", func() bool { return len(b.state().Pools["prefill"]) == 2 })
	c, _ := engine.NewClient(b.engines[2].URL(), engine.Options{})
	defer c.Close()
	if role, err := sglang.New().(engine.Switcher).Role(limit(t), c); role != engine.RolePrefill || err != nil {
		t.Errorf("the process is %q, %v", role, err)
	}
	for range 6 {
		if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// A process that prefills again after it has decoded is found: those that knew its former address have
// forgotten it.
func TestSGLangPrefillsAgain(t *testing.T) {
	b := sglangBedOf(t, func(c *Config) { c.Fleet.Recovery.FailureQuarantineS = 60 }, "prefill", "prefill", "decode", "decode")
	serve := func() {
		t.Helper()
		for i := range 12 {
			if a := b.complete(map[string]any{"prompt": fmt.Sprint("whale ", i), "max_tokens": 2}); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
	move := func(to model.Role, prefill int) {
		t.Helper()
		b.router.own.do(func() {
			b.router.own.move(control.Move{Engine: "e0", To: to, By: control.ByReactive}, b.router.own.now())
		})
		eventually(t, "the role is switched", func() bool { return len(b.state().Pools["prefill"]) == prefill })
	}
	serve()
	move(model.Decode, 1)
	serve()
	move(model.Prefill, 2)
	b.router.own.do(func() { b.router.own.quarantine(b.router.own.node("e1"), holdTimed, "") })
	serve()
	for _, r := range b.rows() {
		if r.Attempts != 1 || r.Terminal != journal.Completed {
			t.Errorf("row %+v: %s", r, failuresOf(r))
		}
	}
}

// With one decode engine nobody can stand in while it forgets: the role stays.
func TestSGLangKeepsTheRoleThatIsKnown(t *testing.T) {
	b := sglangBed(t, "prefill", "decode", "decode")
	b.router.own.do(func() {
		o := b.router.own
		o.acquaint(o.node("e2"), o.node("e1")) // e2 has prefilled for e1 before
		o.move(control.Move{Engine: "e2", To: model.Prefill, By: control.ByReactive}, o.now())
	})
	eventually(t, "the switch is given up", func() bool {
		switching := true
		b.router.own.do(func() { switching = b.router.own.node("e2").switching })
		return !switching
	})
	if n := len(b.state().Pools["prefill"]); n != 1 {
		t.Errorf("%d engines prefill", n)
	}
	if a := b.complete(body(false, 3)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The last process of a role is not held: no engine of the other role stands in for it.
func TestSGLangKeepsTheLastOfARole(t *testing.T) {
	b := sglangBedOf(t, func(c *Config) { c.Fleet.Recovery.FailureQuarantineS = 30 }, "prefill", "decode", "decode")
	held := map[string]bool{}
	b.router.own.do(func() {
		for _, n := range b.router.own.nodes {
			b.router.own.quarantine(n, holdTimed, "")
			held[n.id] = n.hold != nil
		}
	})
	if held["e0"] || !held["e1"] || held["e2"] {
		t.Errorf("held %v", held)
	}
	if a := b.complete(body(false, 2)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

package simulated

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
)

func switched(t *testing.T, c *engine.Client, role string, prepare bool) engine.RoleSwitched {
	t.Helper()
	got, err := c.SwitchRole(limited(t), engine.RoleSwitch{NewRole: role, PrepareOnly: prepare})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func roleOf(t *testing.T, c *engine.Client) string {
	t.Helper()
	role, err := sglang.New().(engine.Switcher).Role(limited(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return role
}

func TestRoleSwitch(t *testing.T) {
	x := bootDuo(t, nil)
	if got := switched(t, x.pc, engine.RoleDecode, true); !got.Success || roleOf(t, x.pc) != engine.RolePrefill {
		t.Fatal("a preparation changed the role", got)
	}
	if got := switched(t, x.pc, engine.RolePrefill, false); !got.Success || got.OldRole != engine.RolePrefill {
		t.Fatal(got)
	}
	p, _ := x.legs(t, prompt)
	ctx, cancel := context.WithCancel(limited(t))
	lone := say(ctx, x.pc, p)
	until(t, "the wait", func() bool { return x.p.Account().Rooms == 1 })
	if got := switched(t, x.pc, engine.RoleDecode, false); got.Success || !got.SafeToRestore || roleOf(t, x.pc) != engine.RolePrefill {
		t.Fatal("a busy process changed its role", got)
	}
	cancel()
	<-lone
	until(t, "rest", func() bool { return x.p.Account().Idle() })
	for c, role := range map[*engine.Client]string{x.pc: engine.RoleDecode, x.dc: engine.RolePrefill} {
		if got := switched(t, c, role, false); !got.Success || got.NewRole != role || roleOf(t, c) != role {
			t.Fatal(got)
		}
	}
	back := duo{x.d, x.p, x.dc, x.pc}
	if p, d := back.run(t, prompt); p.failed() || d.failed() {
		t.Fatalf("%+v %+v", p, d)
	}
	back.rest(t)
}

func TestRefusedRoleSwitches(t *testing.T) {
	_, fixed := bootRole(t, engine.RoleDecode, func(c *Config) { c.RoleSwitch = false })
	_, whole := bootRole(t, engine.RoleNone, nil)
	_, d := bootRole(t, engine.RoleDecode, nil)
	for name, got := range map[string]engine.RoleSwitched{
		"without the option": switched(t, fixed, engine.RolePrefill, false),
		"without a role":     switched(t, whole, engine.RolePrefill, false),
		"to no role":         switched(t, d, engine.RoleNone, false),
	} {
		if got.Success || !got.SafeToRestore || got.Message == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A process that prefills again has a new address behind the old one: a decoding process that
// met it before waits in vain until it leaves and takes its own role again.
func TestReenteredPrefillNeedsARefresh(t *testing.T) {
	x := bootDuo(t, func(c *Config) { c.RendezvousTimeout = fleet.Duration(600 * time.Millisecond) })
	if _, d := x.run(t, prompt); d.failed() {
		t.Fatal(d)
	}
	x.rest(t)
	there := func(c *engine.Client, away, back string) {
		for _, role := range []string{away, back} {
			if got := switched(t, c, role, false); !got.Success {
				t.Fatal(got)
			}
		}
	}
	there(x.pc, engine.RoleDecode, engine.RolePrefill)
	if p, d := x.run(t, prompt); !p.failed() || !d.failed() {
		t.Fatalf("a stale address works: %+v %+v", p, d)
	}
	x.rest(t)
	there(x.dc, engine.RolePrefill, engine.RoleDecode)
	if p, d := x.run(t, prompt); p.failed() || d.failed() {
		t.Fatalf("%+v %+v", p, d)
	}
	x.rest(t)
}

func TestBrokenSwitchLeavesTheProcessUnfit(t *testing.T) {
	s, c := bootRole(t, engine.RoleDecode, nil)
	if err := s.Inject(Injection{Kind: "switch-failure"}); err != nil {
		t.Fatal(err)
	}
	if got := switched(t, c, engine.RolePrefill, false); got.Success || got.SafeToRestore {
		t.Fatal(got)
	}
	if got := switched(t, c, engine.RolePrefill, false); got.Success || got.SafeToRestore {
		t.Fatal("an unfit process changed its role", got)
	}
	var se *engine.StatusError
	if err := sglang.New().Ready(limited(t), c); !errors.As(err, &se) || se.Status != 503 {
		t.Fatal(err)
	}
}

func TestSGLangDrain(t *testing.T) {
	s, c := bootRole(t, engine.RoleNone, func(c *Config) { c.DecodeD = 0.01 })
	got := make(chan []string, 1)
	go func() { got <- events(t, c, completions, `{"prompt":"x","max_tokens":40,"stream":true}`) }()
	until(t, "running", func() bool { return s.State().Load.Running == 1 })
	s.Terminate()
	var se *engine.StatusError
	if err := sglang.New().Ready(limited(t), c); !errors.As(err, &se) || se.Status != 503 {
		t.Fatal(err)
	}
	if _, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), ""); !errors.As(err, &se) || !se.Busy() {
		t.Fatal(err)
	}
	if lines := <-got; len(lines) != 41 || lines[40] != "[DONE]" {
		t.Fatal(len(lines), lines[len(lines)-1])
	}
	<-s.Done()
}

func TestSGLangGivesUpInAStream(t *testing.T) {
	s, c := bootRole(t, engine.RoleNone, nil)
	if err := s.Inject(Injection{Kind: "busy", Count: 2}); err != nil {
		t.Fatal(err)
	}
	var se *engine.StatusError
	if _, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), ""); !errors.As(err, &se) || !se.Busy() || se.Type != "503" {
		t.Fatal(err)
	}
	got := events(t, c, completions, `{"prompt":"x","stream":true}`)
	if len(got) != 2 || !strings.Contains(got[0], `"type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}`) || got[1] != "[DONE]" {
		t.Fatal(got)
	}
}

func TestSGLangCoreDeathSaysNothing(t *testing.T) {
	s, c := bootRole(t, engine.RoleNone, func(c *Config) { c.DecodeD = 0.01 })
	got := say(limited(t), c, []byte(`{"prompt":"x","max_tokens":900,"stream":true}`))
	until(t, "running", func() bool { return s.State().Load.Running == 1 })
	if err := s.Inject(Injection{Kind: "core-death"}); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if h := <-got; h.err == nil || strings.Contains(h.text, "error") || strings.Contains(h.text, "[DONE]") {
		t.Fatalf("%+v", h)
	}
	if !errors.Is(s.Err(), ErrCoreDied) || !s.Account().Idle() {
		t.Fatal(s.Err(), s.Account())
	}
}

func TestSGLangChatStream(t *testing.T) {
	_, c := bootRole(t, engine.RoleNone, nil)
	got := events(t, c, chat, `{"messages":[{"role":"user","content":"hi there"}],"max_completion_tokens":3,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
	if len(got) != 7 || got[6] != "[DONE]" {
		t.Fatal(strings.Join(got, "\n"))
	}
	for i, part := range map[int]string{
		0: `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`,
		4: `"delta":{"role":null,"content":null},"logprobs":null,"finish_reason":"length"`,
		5: `"choices":[],"usage":{"prompt_tokens":`,
	} {
		if !strings.Contains(got[i], part) {
			t.Errorf("event %d lacks %s: %s", i, part, got[i])
		}
	}
}

func TestSGLangSurface(t *testing.T) {
	s, c := bootRole(t, engine.RoleNone, func(c *Config) { c.Root = "/srv/m" })
	m, err := sglang.ModelInfo(limited(t), c)
	if err != nil || m.Path != "/srv/m" {
		t.Fatal(m, err)
	}
	for path, want := range map[string]int{"/get_server_info": 200, "/get_model_info": 200, "/health_generate": 200, "/flush_cache": 200, "/version": 404, "/ping": 404} {
		resp, err := http.Get(s.URL() + path)
		if err != nil || resp.StatusCode != want {
			t.Error(path, resp, err)
		}
		resp.Body.Close()
	}
	if err := c.PostJSON(limited(t), "/pause_generation", map[string]any{}, nil); err != nil {
		t.Fatal(err)
	}
	held := say(limited(t), c, []byte(`{"prompt":"x"}`))
	until(t, "the hold", func() bool { return s.Account().Held == 1 })
	brief, cancel := context.WithTimeout(limited(t), 40*time.Millisecond)
	defer cancel()
	if err := c.Health(brief); !errors.Is(err, context.DeadlineExceeded) || c.Ready(limited(t)) != nil {
		t.Fatal("health does not ask for a token:", err)
	}
	if err := c.PostJSON(limited(t), "/continue_generation", map[string]any{}, nil); err != nil {
		t.Fatal(err)
	}
	if h := <-held; h.failed() {
		t.Fatal(h)
	}
	scrape, err := c.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"num_paused_reqs", "kv_available_tokens", "cache_hit_rate", "page_size", "kv_transfer_alloc_ms_count",
		"num_prefill_retries_total", "request_time_per_output_token_seconds_sum", "per_stage_req_latency_seconds_count"} {
		if _, ok := scrape.Sum("sglang:" + name); !ok {
			t.Error(name, "is missing")
		}
	}
	if _, ok := scrape.Sum("process_start_time_seconds"); ok {
		t.Error("the process's start is among the metrics")
	}
	for _, bad := range []func(*Config){
		func(c *Config) { c.Dialect = "other" }, func(c *Config) { c.Dialect, c.Role = "sglang", "both" },
		func(c *Config) { c.Dialect, c.Role, c.SideChannel = "sglang", "prefill", "" },
		func(c *Config) { c.Dialect, c.RendezvousTimeout = "sglang", -1 },
	} {
		cfg := testConfig()
		bad(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v accepted", cfg)
		}
	}
}

package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

func TestDeaths(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"flat":    func(m map[string]any) { m["remote_block_ids"] = []int{1, 2} },
		"empty":   func(m map[string]any) { m["remote_block_ids"] = []int{} },
		"too few": func(m map[string]any) { m["remote_block_ids"] = [][]int{{1}} },
	} {
		t.Run(name, func(t *testing.T) {
			_, pc := boot(t, nil)
			d, dc := boot(t, func(cfg *Config) { cfg.DecodeD = 0.05 })
			body := `{` + long + `,"max_tokens":12}`
			h := leg1(t, pc, body)
			other := make(chan []string, 1)
			go func() {
				other <- events(t, dc, "/v1/completions", `{"prompt":"another","max_tokens":900,"stream":true}`)
			}()
			until(t, "the other request", func() bool { return d.State().Load.Running == 1 })
			_, err := leg2(t, dc, body, mutate(t, h, change))
			var se *engine.StatusError
			if !errors.As(err, &se) || se.Status != 500 || se.Type != engine.TypeInternal {
				t.Fatal(err)
			}
			lines := <-other
			if n := len(lines); lines[n-1] != "[DONE]" || !strings.Contains(lines[n-2], `{"error": {"message"`) {
				t.Fatal(lines)
			}
			if err := dc.Health(limited(t)); !errors.As(err, &se) || se.Status != 503 || se.Busy() {
				t.Fatal(err)
			}
			<-d.Done()
			if !errors.Is(d.Err(), ErrCoreDied) || dc.Health(limited(t)) == nil {
				t.Fatal(d.Err())
			}
		})
	}
}

func mutate(t *testing.T, h *engine.Handoff, change func(map[string]any)) *engine.Handoff {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(h.Raw, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Handoff{Raw: raw}
}

func TestMissingHostHangsAndKills(t *testing.T) {
	_, pc := boot(t, nil)
	d, dc := boot(t, nil)
	body := `{` + long + `,"max_tokens":4}`
	h := mutate(t, leg1(t, pc, body), func(m map[string]any) { delete(m, "remote_host") })
	b, _ := engine.Decode(vllm.New(), []byte(body), h)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := dc.CompleteBody(ctx, b, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	<-d.Done()
	if !errors.Is(d.Err(), ErrCoreDied) {
		t.Fatal(d.Err())
	}
}

func TestFailedReadsLeaveTheDecoderWell(t *testing.T) {
	body := `{` + long + `,"max_tokens":4}`
	cases := map[string]struct {
		change func(map[string]any)
		p, d   func(*Config)
	}{
		"unknown engine": {change: func(m map[string]any) { m["remote_engine_id"] = "00000000-0000-4000-8000-000000000000" }},
		"wrong port":     {change: func(m map[string]any) { m["remote_port"] = 1 }},
		"other path":     {p: func(c *Config) { c.Root = "/other" }},
		"larger blocks":  {p: func(c *Config) { c.BlockSize = 32 }},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			p, pc := boot(t, k.p)
			_, dc := boot(t, func(c *Config) { c.HandshakeLimit = fleet.Duration(200 * time.Millisecond) })
			h := leg1(t, pc, body)
			if k.change != nil {
				h = mutate(t, h, k.change)
			}
			var se *engine.StatusError
			if _, err := leg2(t, dc, body, h); !errors.As(err, &se) || se.Status != 500 {
				t.Fatal(err)
			}
			if dc.Health(limited(t)) != nil || p.State().Pins != 1 {
				t.Fatal("decoder ill or pin gone")
			}
			if got := ask(t, dc, body); len(got.TokenIDs) != 4 {
				t.Fatal(got)
			}
		})
	}
}

func TestSmallerProducerBlocksGiveWrongText(t *testing.T) {
	_, pc := boot(t, func(c *Config) { c.BlockSize = 8 })
	_, dc := boot(t, nil)
	_, uc := boot(t, nil)
	body := `{` + long + `,"max_tokens":8}`
	got, err := leg2(t, dc, body, leg1(t, pc, body))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(got.TokenIDs, ask(t, uc, body).TokenIDs) {
		t.Fatal("right text from wrong blocks")
	}
}

func TestSameEngineRefusesItself(t *testing.T) {
	_, c := boot(t, nil)
	body := `{` + long + `,"max_tokens":4}`
	var se *engine.StatusError
	if _, err := leg2(t, c, body, leg1(t, c, body)); !errors.As(err, &se) || se.Status != 500 {
		t.Fatal(err)
	}
}

func TestDecodeRefusalsTellTheProducer(t *testing.T) {
	body := `{` + long + `,"max_tokens":4}`
	for name, k := range map[string]struct {
		old, new string
		freed    bool
	}{
		"bad parameter": {`"temperature":0`, `"temperature":-1`, true},
		"unknown model": {`"max_tokens":4`, `"max_tokens":4,"model":"other"`, true},
		"schema":        {`"max_tokens":4`, `"max_tokens":"many"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, pc := boot(t, nil)
			d, dc := boot(t, nil)
			h := leg1(t, pc, body)
			var se *engine.StatusError
			if _, err := leg2(t, dc, strings.Replace(body, k.old, k.new, 1), h); !errors.As(err, &se) || !se.Client() {
				t.Fatal(err)
			}
			if k.freed {
				until(t, "the release", func() bool { return p.State().Pins == 0 })
				return
			}
			d.Stop() // waits for any notice on its way
			if p.State().Pins != 1 {
				t.Fatal("a schema refusal told the producer")
			}
		})
	}
}

func TestKilledProducerFailsTheReadAtOnce(t *testing.T) {
	p, pc := boot(t, nil)
	_, dc := boot(t, nil)
	body := `{` + long + `,"max_tokens":4}`
	if _, err := leg2(t, dc, body, leg1(t, pc, body)); err != nil { // acquaint the pair
		t.Fatal(err)
	}
	other := strings.Replace(body, "the quick", "a slow", 1)
	h := leg1(t, pc, other)
	p.Kill()
	began := time.Now()
	var se *engine.StatusError
	if _, err := leg2(t, dc, other, h); !errors.As(err, &se) || se.Status != 500 || time.Since(began) > 2*time.Second {
		t.Fatal(err, time.Since(began))
	}
	if !errors.Is(p.Err(), ErrKilled) {
		t.Fatal(p.Err())
	}
}

func TestTerminateDefaultLeavesStreamsSilent(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.DecodeD = 0.005 })
	ctx, cancel := context.WithCancel(limited(t))
	resp, err := c.Do(ctx, "/v1/completions", []byte(`{"prompt":"x","max_tokens":1900,"stream":true}`), "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	s.Terminate()
	other, _ := engine.NewClient(s.URL(), engine.Options{})
	if other.Health(limited(t)) == nil {
		t.Fatal("the port still accepts")
	}
	rest := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, resp.Body); rest <- err }()
	select {
	case err := <-rest:
		t.Fatal("the stream ended:", err)
	case <-s.Done():
		t.Fatal("the process left its client")
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	<-rest
	<-s.Done()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

func TestTerminateWithTimeoutDrains(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.DecodeD = 0.01; cfg.ShutdownTimeout = fleet.Duration(10 * time.Second) })
	got := make(chan []string, 1)
	go func() {
		got <- events(t, c, "/v1/completions", `{"prompt":"x","max_tokens":60,"stream":true}`)
	}()
	until(t, "running", func() bool { return s.State().Load.Running == 1 })
	s.Terminate()
	if err := c.Health(limited(t)); err != nil {
		t.Fatal(err)
	}
	_, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), "")
	var se *engine.StatusError
	if !errors.As(err, &se) || se.Status != 500 {
		t.Fatal(err)
	}
	if lines := <-got; len(lines) != 61 || lines[60] != "[DONE]" {
		t.Fatal(len(lines), lines[len(lines)-1])
	}
	<-s.Done()
}

func TestFrozenProducerHangsTheDecoder(t *testing.T) {
	p, pc := boot(t, nil)
	d, dc := boot(t, nil)
	body := `{` + long + `,"max_tokens":4}`
	h := leg1(t, pc, body)
	if err := p.Inject(Injection{Kind: "freeze"}); err != nil {
		t.Fatal(err)
	}
	type result struct {
		engine.Completion
		error
	}
	done := make(chan result, 1)
	go func() {
		got, err := leg2(t, dc, body, h)
		done <- result{got, err}
	}()
	until(t, "the wait", func() bool { return d.State().Load.Deferred == 1 })
	if got := ask(t, dc, `{"prompt":"other","max_tokens":2}`); got.Usage.CompletionTokens != 2 {
		t.Fatal("other requests do not go on")
	}
	off := false
	if err := p.Inject(Injection{Kind: "freeze", On: &off}); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.error != nil || len(r.TokenIDs) != 4 {
		t.Fatal(r.error)
	}
}

func TestInjectedStreamFaults(t *testing.T) {
	s, c := boot(t, nil)
	body := `{"prompt":"x","max_tokens":10,"stream":true}`
	inject := func(kind string) {
		t.Helper()
		b := fmt.Sprintf(`{"kind":%q,"after":3}`, kind)
		resp, err := http.Post(s.URL()+"/simulated/inject", "application/json", strings.NewReader(b))
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(err, resp)
		}
		resp.Body.Close()
	}
	inject("error")
	if got := events(t, c, "/v1/completions", body); len(got) != 5 || !strings.Contains(got[3], `"error"`) || got[4] != "[DONE]" {
		t.Fatal(got)
	}
	inject("eof")
	if got := events(t, c, "/v1/completions", body); len(got) != 3 || strings.Contains(got[2], "DONE") || strings.Contains(got[2], "broken") {
		t.Fatal(got)
	}
	inject("reset")
	if got := events(t, c, "/v1/completions", body); !strings.Contains(got[len(got)-1], "broken") {
		t.Fatal(got)
	}
	if got := events(t, c, "/v1/completions", body); len(got) != 11 {
		t.Fatal("a fault outlived its count", got)
	}
	for _, in := range []Injection{{Kind: "split"}, {Kind: "join", Count: 3}, {Kind: "utf8"}} {
		if err := s.Inject(in); err != nil {
			t.Fatal(err)
		}
	}
	if got := events(t, c, "/v1/completions", body); len(got) != 5 {
		t.Fatal(got)
	}
}

func TestInjectedHandoffFaults(t *testing.T) {
	p, pc := boot(t, nil)
	d, dc := boot(t, nil)
	body := `{` + long + `,"max_tokens":8}`
	want := ask(t, dc, body)
	d.with(func(time.Time) { d.core.ForgetPrefixes() })
	b, _ := engine.Prefill(vllm.New(), []byte(body))
	must := func(s *Server, in Injection) {
		t.Helper()
		if err := s.Inject(in); err != nil {
			t.Fatal(err)
		}
	}
	must(p, Injection{Kind: "drop-handoff"})
	if _, _, err := vllm.New().ParseHandoff(ask(t, pc, string(b)).Raw, time.Now()); !errors.Is(err, engine.ErrNoHandoff) {
		t.Fatal(err)
	}
	must(p, Injection{Kind: "corrupt-handoff", Field: "remote_port"})
	if err := vllm.New().Check(leg1(t, pc, body), engine.Expect{}); err == nil {
		t.Fatal("corrupt handoff passed")
	}
	must(d, Injection{Kind: "read-failure"})
	var se *engine.StatusError
	if _, err := leg2(t, dc, body, leg1(t, pc, body)); !errors.As(err, &se) || se.Status != 500 {
		t.Fatal(err)
	}
	must(d, Injection{Kind: "wrong-block"})
	if got, err := leg2(t, dc, body, leg1(t, pc, body)); err != nil || slices.Equal(got.TokenIDs, want.TokenIDs) {
		t.Fatal("wrong blocks gave the right text", err)
	}
	d.with(func(time.Time) { d.core.ForgetPrefixes() })
	h := leg1(t, pc, body)
	must(p, Injection{Kind: "recycle"})
	if got, err := leg2(t, dc, body, h); err != nil || slices.Equal(got.TokenIDs, want.TokenIDs) {
		t.Fatal("recycled blocks gave the right text", err)
	}
	if err := p.Inject(Injection{Kind: "nonsense"}); err == nil {
		t.Fatal("unknown kind accepted")
	}
}

func TestRefuseBusyAndKey(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.APIKey = fleet.NewSecret("k") })
	stranger, _ := engine.NewClient(s.URL(), engine.Options{})
	var se *engine.StatusError
	if _, err := stranger.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), ""); !errors.As(err, &se) || se.Status != 401 {
		t.Fatal(err)
	}
	ask(t, c, `{"prompt":"x"}`)
	_ = s.Inject(Injection{Kind: "busy"})
	if _, err := c.CompleteBody(limited(t), []byte(`{"prompt":"x"}`), ""); !errors.As(err, &se) || !se.Busy() {
		t.Fatal(err)
	}
	_ = s.Inject(Injection{Kind: "refuse"})
	c.Close()
	if err := c.Health(limited(t)); err == nil {
		t.Fatal("a refusing engine answered")
	}
	off := false
	if err := s.Inject(Injection{Kind: "refuse", On: &off}); err != nil {
		t.Fatal(err)
	}
	if err := c.Health(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestNoConnectorIgnoresTransfer(t *testing.T) {
	_, c := boot(t, func(cfg *Config) { cfg.SideChannel = "" })
	b, _ := engine.Prefill(vllm.New(), []byte(`{"prompt":"x"}`))
	if _, _, err := vllm.New().ParseHandoff(ask(t, c, string(b)).Raw, time.Now()); !errors.Is(err, engine.ErrNoHandoff) {
		t.Fatal(err)
	}
}

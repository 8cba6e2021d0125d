package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

func testConfig() Config {
	return Config{
		Model: "tiny", SideChannel: "127.0.0.1:0",
		Simulated: fleet.Simulated{
			PrefillA: 0.001, PrefillB: 0.00001, DecodeD: 0.001, BlockSize: 16, Blocks: 400,
			MaxModelLen: 2048, MaxNumSeqs: 8, MaxBatched: 2048, LeaseS: 30, PrefixCaching: true, FailureControl: true,
		},
	}
}

func boot(t *testing.T, change func(*Config)) (*Server, *engine.Client) {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := engine.NewClient(s.URL(), engine.Options{Key: cfg.APIKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

// limited gives each wait of a test an end.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// until polls for a state that another goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s does not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func ask(t *testing.T, c *engine.Client, body string) engine.Completion {
	t.Helper()
	got, err := c.CompleteBody(limited(t), []byte(body), "")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const long = `"prompt":"the quick brown fox jumps over the lazy dog and then goes home to sleep for a very long time indeed","temperature":0,"return_token_ids":true`

// leg1 returns a handoff for the long prompt.
func leg1(t *testing.T, c *engine.Client, body string) *engine.Handoff {
	t.Helper()
	b, err := engine.Prefill(vllm.New(), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := vllm.New().ParseHandoff(ask(t, c, string(b)).Raw, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func leg2(t *testing.T, c *engine.Client, body string, h *engine.Handoff) (engine.Completion, error) {
	t.Helper()
	b, err := engine.Decode(vllm.New(), []byte(body), h)
	if err != nil {
		t.Fatal(err)
	}
	return c.CompleteBody(limited(t), b, "")
}

func TestSplitPair(t *testing.T) {
	p, pc := boot(t, nil)
	_, dc := boot(t, nil)
	body := `{` + long + `,"max_tokens":12}`
	want := ask(t, dc, strings.Replace(body, "the quick", "the quick", 1))
	_, dc2 := boot(t, nil)
	h := leg1(t, pc, body)
	check := engine.Expect{EngineID: p.EngineID(), Host: "127.0.0.1", Port: p.SidePort(), BlockSize: 16, PromptTokens: want.Usage.PromptTokens}
	if err := vllm.New().Check(h, check); err != nil {
		t.Fatal(err)
	}
	if p.State().Pins != 1 {
		t.Fatal("nothing pinned")
	}
	got, err := leg2(t, dc2, body, h)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.TokenIDs, want.TokenIDs) || got.Text != want.Text || len(got.TokenIDs) != 12 {
		t.Fatalf("split %q unsplit %q", got.Text, want.Text)
	}
	until(t, "the producer's release", func() bool { return p.State().Pins == 0 })
	s, err := dc2.Metrics(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	st, err := vllm.New().State(s)
	if err != nil {
		t.Fatal(err)
	}
	l, err := dc2.CacheLayout(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	blocks := float64((want.Usage.PromptTokens + 15) / 16)
	if st.Transferred != float64(want.Usage.PromptTokens) || st.LocalCompute != 0 || st.Transfers != 1 ||
		st.TransferBytes != blocks*float64(l.BytesPerBlock) || l.Geometry == nil || l.BytesPerBlock != 16*l.Geometry.BytesPerToken() {
		t.Fatalf("%+v %+v", st, l)
	}
}

func TestIdentityAndModels(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.Root = "/srv/m"; cfg.EngineVersion = "0.31.1" })
	ctx := limited(t)
	if err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	id, err := c.Identity(ctx)
	if err != nil || id.Version != "0.31.1" || id.ProcessStart < 1e9 {
		t.Fatal(id, err)
	}
	m, err := c.Models(ctx)
	if err != nil || m[0] != (engine.Model{ID: "tiny", Root: "/srv/m", MaxModelLen: 2048}) {
		t.Fatal(m, err)
	}
	tok, err := c.Tokenize(ctx, engine.TokenizeRequest{Prompt: "hello there"})
	if err != nil || tok.Count != len(tok.IDs) || tok.Count == 0 {
		t.Fatal(tok, err)
	}
	other, _ := boot(t, nil)
	if other.EngineID() == s.EngineID() {
		t.Fatal("two engines with one identity")
	}
}

// events reads a stream to its end.
func events(t *testing.T, c *engine.Client, path, body string) (lines []string) {
	t.Helper()
	resp, err := c.Do(limited(t), path, []byte(body), "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	b, err := io.ReadAll(resp.Body)
	for _, e := range bytes.Split(b, []byte("\n\n")) {
		if len(e) > 0 {
			lines = append(lines, strings.TrimPrefix(string(e), "data: "))
		}
	}
	if err != nil {
		lines = append(lines, "broken: "+err.Error())
	}
	return lines
}

func TestStreamShapes(t *testing.T) {
	_, c := boot(t, nil)
	got := events(t, c, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi there"}],"max_tokens":4,"temperature":0,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"return_token_ids":true,"logprobs":true,"top_logprobs":2}`)
	if len(got) != 7 || got[6] != "[DONE]" {
		t.Fatal(strings.Join(got, "\n"))
	}
	for i, e := range got[:6] {
		if !json.Valid([]byte(e)) {
			t.Fatalf("event %d is no json: %s", i, e)
		}
	}
	for i, part := range map[int]string{
		0: `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{`,
		1: `"completion_tokens":1,`, 4: `"finish_reason":"length","stop_reason":null`, 5: `"choices":[],"usage":{`,
	} {
		if !strings.Contains(got[i], part) {
			t.Errorf("event %d lacks %s: %s", i, part, got[i])
		}
	}
}

func TestStopString(t *testing.T) {
	_, c := boot(t, nil)
	free := ask(t, c, `{`+long+`,"max_tokens":8}`)
	stop := free.Text[9:12]
	body := fmt.Sprintf(`{%s,"max_tokens":8,"stop":[%q]}`, long, stop)
	got := ask(t, c, body)
	want := free.Text[:strings.Index(free.Text, stop)]
	if got.Text != want || got.FinishReason != "stop" {
		t.Fatalf("%q %s, want %q", got.Text, got.FinishReason, want)
	}
	var text string
	for _, e := range events(t, c, "/v1/completions", strings.Replace(body, "{", `{"stream":true,`, 1)) {
		var w struct{ Choices []struct{ Text string } }
		if json.Unmarshal([]byte(e), &w) == nil && len(w.Choices) > 0 {
			text += w.Choices[0].Text
		}
	}
	if text != want {
		t.Fatalf("streamed %q, want %q", text, want)
	}
}

func TestAbortFrees(t *testing.T) {
	s, c := boot(t, func(cfg *Config) { cfg.DecodeD = 0.02 })
	for _, stream := range []string{"true", "false"} {
		ctx, cancel := context.WithCancel(limited(t))
		go func() {
			until(t, "running", func() bool { return s.State().Load.Running == 1 })
			cancel()
		}()
		resp, err := c.Do(ctx, "/v1/completions", []byte(`{`+long+`,"max_tokens":500,"stream":`+stream+`}`), "")
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Fatal("the request ended by itself")
		}
		until(t, "the release", func() bool { return s.State().Load.Running == 0 && s.State().Calls == 0 })
	}
}

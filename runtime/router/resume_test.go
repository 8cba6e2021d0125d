package router

import (
	"net/http"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// A greedy stream whose engine dies goes on word for word on another one where that is asked
// for; the client sees one answer with one id and the usage of the whole.
func TestRow32StreamsAreContinued(t *testing.T) {
	b := startBed(t, 1, 3, quick(), func(c *Config) { c.Continue = true })
	for path, body := range map[string]map[string]any{
		"/v1/completions":      {"prompt": "whale song in the deep", "max_tokens": 20, "temperature": 0},
		"/v1/chat/completions": {"messages": []any{map[string]any{"role": "user", "content": "sing"}}, "max_tokens": 20, "temperature": 0.0},
	} {
		want := post(t, limit(t), b.url+path, body)
		body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
		for range 6 { // placed on an engine that will break four times on average
			continues(t, b, path, body, text(t, want.body))
		}
	}
	n := 0
	for _, r := range b.rows() {
		if r.Terminal != "completed" || r.OutputLen == nil || *r.OutputLen != 20 {
			t.Errorf("row %+v", r)
		}
		for _, f := range r.Failures {
			if f.RetryReason == continued {
				n++
			}
		}
	}
	if n == 0 {
		t.Error("nothing was continued")
	}
}

func continues(t *testing.T, b *testbed, path string, body map[string]any, want string) {
	t.Helper()
	for _, e := range []string{"d0", "d1"} {
		b.inject(e, simulated.Injection{Kind: "error", After: 6, Count: 1})
	}
	got := post(t, limit(t), b.url+path, body)
	if a := allText(t, got.body); a != want || got.status != http.StatusOK {
		t.Errorf("%s: %d\n got %q\nwant %q\n%s", path, got.status, a, want, got.body)
	}
	if strings.Contains(got.body, `"error"`) || strings.Contains(got.body, "token_ids") || strings.Count(got.body, "[DONE]") != 1 || !strings.Contains(got.body, `"completion_tokens":20`) {
		t.Errorf("%s: %s", path, got.body)
	}
	ids := map[string]bool{}
	for _, e := range events(t, got.body) {
		if _, after, ok := strings.Cut(e, `"id":"`); ok {
			id, _, _ := strings.Cut(after, `"`)
			ids[id] = true
		}
	}
	if len(ids) != 1 {
		t.Errorf("%s: ids %v", path, ids)
	}
	for _, e := range []string{"d0", "d1"} {
		b.inject(e, simulated.Injection{Kind: "clear"})
	}
}

func TestContinuable(t *testing.T) {
	for body, want := range map[string]bool{
		`{"prompt":"x","stream":true,"temperature":0}`:                                                  true,
		`{"prompt":"x","stream":true,"temperature":0.0,"max_tokens":5,"seed":3,"stop":[]}`:              true,
		`{"prompt":"x","stream":true}`:                                                                  false,
		`{"prompt":"x","temperature":0}`:                                                                false,
		`{"prompt":"x","stream":true,"temperature":0.7}`:                                                false,
		`{"prompt":"x","stream":true,"temperature":0,"stop":["a"]}`:                                     false,
		`{"prompt":"x","stream":true,"temperature":0,"logprobs":1}`:                                     false,
		`{"prompt":"x","stream":true,"temperature":0,"n":2}`:                                            false,
		`{"prompt":"x","stream":true,"temperature":0,"presence_penalty":0.5}`:                           false,
		`{"prompt":"x","stream":true,"temperature":0,"response_format":{"type":"json"}}`:                false,
		`{"prompt":"x","stream":true,"stream_options":{"continuous_usage_stats":true},"temperature":0}`: false,
	} {
		c, f := parseCall(false, []byte(body))
		if f != nil || c.continuable() != want {
			t.Errorf("%s: %v, want %v", body, c.continuable(), want)
		}
	}
}

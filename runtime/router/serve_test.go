package router

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

var prompt = strings.Repeat("the whale dives under the ice and ", 12)

func TestSplitAnswersEqualUnsplit(t *testing.T) {
	b := startBed(t, 2, 2, quick())
	for _, c := range []struct {
		path string
		body map[string]any
	}{
		{"/v1/completions", map[string]any{"prompt": prompt + "one", "max_tokens": 24, "temperature": 0, "return_token_ids": true}},
		{"/v1/completions", map[string]any{"prompt": []int{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}, "max_tokens": 9}},
		{"/v1/chat/completions", map[string]any{"messages": []any{map[string]any{"role": "user", "content": prompt + "two"}}, "max_completion_tokens": 24}},
	} {
		direct := post(t, limit(t), b.engines[0].URL()+c.path, c.body)
		buffered := post(t, limit(t), b.url+c.path, c.body)
		if direct.status != 200 || buffered.status != 200 {
			t.Fatalf("%s: status %d and %d: %s", c.path, direct.status, buffered.status, buffered.body)
		}
		want := text(t, direct.body)
		if got := text(t, buffered.body); got != want || want == "" {
			t.Errorf("%s buffered: %q, unsplit %q", c.path, got, want)
		}
		c.body["stream"] = true
		streamed := post(t, limit(t), b.url+c.path, c.body)
		evs := events(t, streamed.body)
		got := ""
		for _, e := range evs[:len(evs)-1] {
			got += text(t, e)
		}
		if got != want {
			t.Errorf("%s streamed: %q, unsplit %q", c.path, got, want)
		}
		if evs[len(evs)-1] != "[DONE]" || strings.Count(streamed.body, "[DONE]") != 1 {
			t.Errorf("%s: stream ends %q", c.path, evs[len(evs)-1])
		}
		if strings.Contains(streamed.body, `"usage":{`) {
			t.Errorf("%s: a usage event that nobody asked for", c.path)
		}
		if ct := streamed.header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
			t.Errorf("content type %q", ct)
		}
	}
	s := b.state()
	if s.Offered != 6 || s.Served != 6 || s.SLOMet != 6 || s.Failed != 0 {
		t.Errorf("state: offered %d served %d met %d failed %d", s.Offered, s.Served, s.SLOMet, s.Failed)
	}
	for _, row := range b.rows() {
		if !row.Crossed || row.Terminal != journal.Completed || row.OutputLen == nil || *row.OutputLen < 9 || row.TTFT == nil || row.TPOT == nil || len(row.Decision) == 0 || !row.SLOMet || row.AtUnix < 1e9 {
			t.Errorf("row %+v", row)
		}
	}
}

func TestStreamWithUsageAsked(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	a := b.complete(map[string]any{"prompt": prompt, "max_tokens": 5, "stream": true, "stream_options": map[string]any{"include_usage": true}})
	evs := events(t, a.body)
	if len(evs) < 3 || !strings.Contains(evs[len(evs)-2], `"completion_tokens":5`) || !strings.Contains(evs[len(evs)-2], `"choices":[]`) {
		t.Errorf("stream %s", a.body)
	}
}

func TestOneEngineServesInOneLeg(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	want := text(t, post(t, limit(t), b.engines[0].URL()+"/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 6}).body)
	a := b.complete(map[string]any{"prompt": prompt, "max_tokens": 6})
	if a.status != 200 || text(t, a.body) != want {
		t.Fatalf("%d %s", a.status, a.body)
	}
	rows := b.rows()
	if len(rows) != 1 || rows[0].Crossed || rows[0].Upstream.Prefill != 0 || rows[0].DecodeAttempts != 1 || rows[0].TTFT == nil {
		t.Errorf("rows %+v", rows)
	}
}

func TestUnsplittableGoesToOneEngineWhole(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	a := b.complete(map[string]any{"prompt": []string{"one prompt", "another prompt"}, "max_tokens": 4})
	if a.status != 200 || strings.Count(a.body, `"index":`) != 2 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if rows := b.rows(); rows[0].Crossed || rows[0].Prefill == nil || *rows[0].Prefill != *rows[0].Decode {
		t.Errorf("row %+v", rows[0])
	}
}

func TestRefusalsBeforeAnyLeg(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.MaxRequestBytes = 30000
		for i := range c.Profiles.Rows {
			c.Profiles.Rows[i].TTFTB = 0.001 // a token a millisecond: 2000 tokens use up the promise
		}
	})
	long := make([]int, 4000)
	for _, c := range []struct {
		name       string
		body       any
		status     int
		want       string
		retryAfter string
		terminal   string
	}{
		{"bad json", `{"prompt":"x"`, 400, `{"error":{"message":"the request body is not valid JSON at byte offset 13: it ends within a value","type":"invalid_request_error","param":null,"code":null}}`, "", "invalid"},
		{"array", `[1]`, 400, "the request body must be a JSON object", "", "invalid"},
		{"empty", ``, 400, "the request body is empty", "", "invalid"},
		{"model type", `{"model":3,"prompt":"x"}`, 400, `"model must be a string","type":"invalid_request_error","param":"model"`, "", "invalid"},
		{"stream type", `{"stream":"yes","prompt":"x"}`, 400, `stream must be a boolean`, "", "invalid"},
		{"n boolean", `{"n":true,"prompt":"x"}`, 400, `n must be an integer`, "", "invalid"},
		{"prompt type", `{"prompt":5}`, 400, `prompt must be a string or an array`, "", "invalid"},
		{"messages", `{"messages":[1]}`, 400, `every item in messages must be an object`, "", "invalid"},
		{"reserved", `{"prompt":"x","vllm_xargs":{"kv_transfer_params":{}}}`, 400, `vllm_xargs.kv_transfer_params is reserved for Narwhal`, "", "invalid"},
		{"model", `{"model":"other","prompt":"x"}`, 404, `"code":"model_not_found"`, "", "invalid"},
		{"size", `{"prompt":"` + strings.Repeat("x", 31000) + `"}`, 413, `{"error":{"message":"request body exceeds max_request_bytes","type":"request_too_large","param":null,"code":null}}`, "", "invalid"},
		{"prompt price", map[string]any{"prompt": long, "max_tokens": 4}, 429, `"type":"server_overloaded_error"`, "", "refused"},
		{"engine 400", map[string]any{"prompt": "x", "max_tokens": 4, "temperature": -1}, 400, `"type":"invalid_request_error"`, "", "invalid"},
	} {
		a := b.complete(c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) || a.header.Get("Retry-After") != c.retryAfter {
			t.Errorf("%s: %d %s %s", c.name, a.status, a.header.Get("Retry-After"), a.body)
		}
		if len(a.header.Get("X-Request-Id")) != 36 || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", c.name, a.header)
		}
	}
	s := b.state()
	if len(s.Ejected) != 0 || s.Offered != 13 || s.Invalid != 12 || s.Outcomes["refused"].(map[string]any)["prompt"] != 1.0 {
		t.Errorf("state: ejected %v, offered %d, invalid %d, %v", s.Ejected, s.Offered, s.Invalid, s.Outcomes)
	}
	if rows := b.rows(); len(rows) != 13 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestSmallDocuments(t *testing.T) {
	b := startBed(t, 1, 2, quick())
	if code := b.get("/ready", nil); code != 200 {
		t.Errorf("ready %d", code)
	}
	var h map[string]any
	b.get("/health", &h)
	if h["status"] != "ok" || h["instances"] != 3.0 || h["available_instances"] != 3.0 {
		t.Errorf("health %v", h)
	}
	var targets []map[string]any
	b.get("/narwhal/targets", &targets)
	if len(targets) != 3 || "http://"+targets[0]["targets"].([]any)[0].(string) != b.engines[0].URL() {
		t.Errorf("targets %v", targets)
	}
	var nf map[string]any
	if code := b.get("/nope", &nf); code != 404 || nf["detail"] != "Not Found" {
		t.Errorf("404: %d %v", code, nf)
	}
	if code := b.get("/v1/completions", &nf); code != 405 || nf["detail"] != "Method Not Allowed" {
		t.Errorf("405: %d %v", code, nf)
	}
	s := b.state()
	if s.Schema != "narwhal.state" || len(s.Pools["decode"]) != 2 || s.Resident["p0"]["prefill"] != 0 {
		t.Errorf("state %+v", s)
	}
}

// However an engine cuts its events over writes, the client gets the same events.
func TestStreamsSurviveOddFraming(t *testing.T) {
	for _, in := range []simulated.Injection{{Kind: "split"}, {Kind: "utf8"}, {Kind: "join", Count: 3}} {
		t.Run(in.Kind, func(t *testing.T) {
			t.Parallel()
			b := startBed(t, 1, 1, quick())
			for _, e := range b.engines {
				if err := e.Inject(in); err != nil {
					t.Fatal(err)
				}
			}
			want := text(t, post(t, limit(t), b.engines[0].URL()+"/v1/completions", body(false, 12)).body)
			a := b.complete(body(true, 12))
			got := ""
			evs := events(t, a.body)
			for _, e := range evs[:len(evs)-1] {
				got += text(t, e)
			}
			if got != want || evs[len(evs)-1] != "[DONE]" {
				t.Errorf("streamed %q, unsplit %q, end %q", got, want, evs[len(evs)-1])
			}
			if buffered := b.complete(body(false, 12)); text(t, buffered.body) != want {
				t.Errorf("buffered %q, unsplit %q", text(t, buffered.body), want)
			}
		})
	}
}

package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// payload returns the body of a recorded message.
func payload(t *testing.T, parts ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		if _, body, ok = bytes.Cut(b, []byte("\n\n")); !ok {
			t.Fatalf("no header end in %v", parts)
		}
	}
	return body
}

func TestPrefillBody(t *testing.T) {
	const kv = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}`
	cases := []struct{ name, in, want string }{
		{"limit", `{"prompt":[1,2],"max_tokens":80,"temperature":0.10}`, `{"prompt":[1,2],"temperature":0.10,"stream":false,"max_tokens":1,` + kv},
		{"no limit", `{"prompt":"x"}`, `{"prompt":"x","stream":false,"max_tokens":1,` + kv},
		{"chat limit", `{"messages":[],"max_completion_tokens":9}`, `{"messages":[],"stream":false,"max_completion_tokens":1,` + kv},
		{"both limits", `{"max_tokens":5,"max_completion_tokens":9}`, `{"stream":false,"max_tokens":1,"max_completion_tokens":1,` + kv},
		{"a limit that completions ignore", `{"prompt":"x","max_completion_tokens":3}`, `{"prompt":"x","stream":false,"max_completion_tokens":1,"max_tokens":1,` + kv},
		{"stream", `{"stream":true,"stream_options":{"include_usage":true},"min_tokens":4}`, `{"stream":false,"max_tokens":1,` + kv},
		{"stop", `{"stop":["a"],"stop_token_ids":[3],"include_stop_str_in_output":true,"max_tokens":9}`, `{"stream":false,"max_tokens":1,` + kv},
		{"logprobs", `{"logprobs":true,"top_logprobs":3,"response_format":{"type":"json_object"},"structured_outputs":{}}`, `{"stream":false,"max_tokens":1,` + kv},
		{"n", `{"n":1,"best_of":null}`, `{"best_of":null,"stream":false,"max_tokens":1,"n":1,` + kv},
		{"tools stay", `{"tools":[{"a":1}],"tool_choice":"required"}`, `{"tools":[{"a":1}],"stream":false,"max_tokens":1,` + kv},
		{"tool named", `{"tools":[{"a":1}],"tool_choice":{"type":"function"}}`, `{"tools":[{"a":1}],"stream":false,"max_tokens":1,` + kv},
		{"tool auto stays", `{"tool_choice":"auto"}`, `{"tool_choice":"auto","stream":false,"max_tokens":1,` + kv},
		{"prompt shape stays", `{"add_special_tokens":false,"cache_salt":"s","truncate_prompt_tokens":4}`, `{"add_special_tokens":false,"cache_salt":"s","truncate_prompt_tokens":4,"stream":false,"max_tokens":1,` + kv},
		{"foreign", `{"kv_transfer_params":{"do_remote_prefill":true},"ec_transfer_params":{},"bootstrap_host":"h","vllm_xargs":{},"max_tokens":2}`, `{"stream":false,"max_tokens":1,` + kv},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := engine.Prefill(New(), []byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	if _, err := engine.Prefill(New(), []byte(`[1]`)); err == nil {
		t.Fatal("a list was rewritten")
	}
}

// The recorded leg-1 bodies were accepted by a real engine; ours must ask for the same.
func TestPrefillEqualsRecordedLeg(t *testing.T) {
	for _, dir := range []string{"completions-first-contact", "chat-stream", "chat-buffered"} {
		t.Run(dir, func(t *testing.T) {
			recorded := decode(t, payload(t, "pd", dir, "1-prefill-request.http"))
			got, err := engine.Prefill(New(), payload(t, "pd", dir, "2-decode-request.http"))
			if err != nil {
				t.Fatal(err)
			}
			g := decode(t, got)
			delete(g, "stream") // the recording leaves out the default
			kv := recorded["kv_transfer_params"].(map[string]any)
			for k, v := range kv {
				if v == nil { // optional
					delete(kv, k)
				}
			}
			if d := cmp.Diff(recorded, g); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestDecodeEqualsRecordedLeg(t *testing.T) {
	for _, dir := range []string{"completions-first-contact", "chat-stream", "chat-buffered"} {
		t.Run(dir, func(t *testing.T) {
			want := payload(t, "pd", dir, "2-decode-request.http")
			h, _, err := New().ParseHandoff(payload(t, "pd", dir, "1-prefill-response.http"), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			client, err := engine.Decode(New(), want, nil)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(client, []byte("kv_transfer_params")) {
				t.Fatalf("transfer field kept: %s", client)
			}
			got, err := engine.Decode(New(), client, h)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(bytes.TrimSpace(want)) {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSerial(t *testing.T) {
	if New().Concurrent() {
		t.Fatal("leg 2 needs leg 1")
	}
	if _, _, err := engine.Pair(New(), []byte(`{}`), false, engine.Rendezvous{}); !errors.Is(err, engine.ErrSerial) {
		t.Fatal(err)
	}
}

func TestSplittable(t *testing.T) {
	cases := []struct {
		in string
		ok bool
	}{
		{`{"prompt":"x"}`, true},
		{`{"prompt":[1,2]}`, true},
		{`{"prompt":[ 7 ],"n":1}`, true},
		{`{"prompt":["a","b"]}`, false},
		{`{"prompt":["a"]}`, false},
		{`{"prompt":[[1],[2]]}`, false},
		{`{"prompt":[]}`, false},
		{`{"n":2}`, false},
		{`{"n":null,"best_of":1}`, true},
		{`{"best_of":3}`, false},
		{`{"prompt_logprobs":0}`, false},
		{`{"prompt_logprobs":null}`, true},
		{`{"prompt_embeds":"AA=="}`, false},
		{`{"echo":true}`, true},
		{`{"echo":true,"logprobs":1}`, false},
		{`{"echo":true,"logprobs":null}`, true},
		{`{"use_beam_search":true}`, false},
		{`[]`, false},
		{`{`, false},
	}
	for _, c := range cases {
		reason, ok := engine.Splittable(New(), []byte(c.in))
		if ok != c.ok || (reason == "") != ok {
			t.Errorf("%s: %v %q", c.in, ok, reason)
		}
	}
}

// Whatever the client sends, neither leg carries a transfer member of its own making, and the
// members that shape the prompt are the same on both.
func TestLegsAgree(t *testing.T) {
	keys := rapid.SampledFrom([]string{"prompt", "messages", "tools", "max_tokens", "max_completion_tokens",
		"stream", "stream_options", "min_tokens", "kv_transfer_params", "ec_transfer_params", "bootstrap_room",
		"vllm_xargs", "seed", "cache_salt", "temperature", "tool_choice", "é"})
	vals := rapid.SampledFrom([]string{`1`, `"required"`, `null`, `{"a":[1,2.50]}`, `true`, `[1,2]`, `12345678901234567890`})
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(keys, vals).Draw(t, "body")
		raw := map[string]json.RawMessage{}
		for k, v := range m {
			raw[k] = json.RawMessage(v)
		}
		body, _ := json.Marshal(raw)
		p, err := engine.Prefill(New(), body)
		if err != nil {
			t.Fatal(err)
		}
		d, err := engine.Decode(New(), body, &engine.Handoff{Raw: json.RawMessage(`{"x":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		var pm, dm map[string]json.RawMessage
		if json.Unmarshal(p, &pm) != nil || json.Unmarshal(d, &dm) != nil {
			t.Fatalf("%s %s", p, d)
		}
		if string(pm["kv_transfer_params"]) != string(leg1Params) || string(dm["kv_transfer_params"]) != `{"x":1}` {
			t.Fatalf("%s %s", p, d)
		}
		for _, k := range []string{"ec_transfer_params", "bootstrap_room", "vllm_xargs"} {
			if pm[k] != nil || dm[k] != nil {
				t.Fatalf("%s kept", k)
			}
		}
		for _, k := range []string{"prompt", "messages", "tools", "seed", "cache_salt", "é"} {
			if string(pm[k]) != string(dm[k]) || string(pm[k]) != m[k] {
				t.Fatalf("%s differs: %s %s", k, pm[k], dm[k])
			}
		}
	})
}

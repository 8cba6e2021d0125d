package sglang

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

var room = engine.Rendezvous{Host: "10.0.0.11", Port: 8998, Room: 6930080892431312599}

const meets = `"bootstrap_host":"10.0.0.11","bootstrap_port":8998,"bootstrap_room":6930080892431312599}`

func TestPair(t *testing.T) {
	const first = `"max_tokens":1,"stream":false,` + meets
	const second = `"stream":true,"return_token_ids":true,`
	cases := []struct {
		name, in, prefill, decode string
		chat                      bool
	}{
		{name: "bytes stay", in: `{"prompt":"x","temperature":0.7,"top_p":1e0, "seed" : 12345678901234567890}`,
			prefill: `{"prompt":"x","temperature":0.7,"top_p":1e0,"seed" : 12345678901234567890,` + first,
			decode:  `{"prompt":"x","temperature":0.7,"top_p":1e0,"seed" : 12345678901234567890,` + second + meets},
		{name: "limit", in: `{"prompt":"x","max_tokens":3}`, prefill: `{"prompt":"x",` + first,
			decode: `{"prompt":"x","max_tokens":3,` + second + meets},
		{name: "limit renamed", in: `{"prompt":"x","max_completion_tokens":4,"max_tokens":9}`, prefill: `{"prompt":"x",` + first,
			decode: `{"prompt":"x",` + second + `"max_tokens":4,` + meets},
		{name: "null limit", in: `{"prompt":"x","max_completion_tokens":null,"max_tokens":9}`, prefill: `{"prompt":"x",` + first,
			decode: `{"prompt":"x","max_tokens":9,` + second + meets},
		{name: "chat", chat: true, in: `{"messages":[],"return_token_ids":false}`,
			prefill: `{"messages":[],"return_token_ids":false,` + first,
			decode:  `{"messages":[],"return_token_ids":false,"stream":true,` + meets},
		{name: "stream options", in: `{"stream":true,"stream_options":{"include_usage":true},"min_tokens":4,"n":1,"best_of":null}`,
			prefill: `{` + first,
			decode:  `{"stream_options":{"include_usage":true},"min_tokens":4,"n":1,"best_of":null,` + second + meets},
		{name: "first token's rules stay", in: `{"logprobs":2,"response_format":{"type":"json_object"},"tool_choice":"required","stop":["a"]}`,
			prefill: `{"logprobs":2,"response_format":{"type":"json_object"},"tool_choice":"required","stop":["a"],` + first,
			decode:  `{"logprobs":2,"response_format":{"type":"json_object"},"tool_choice":"required","stop":["a"],` + second + meets},
		{name: "foreign", in: `{"rid":"mine","bootstrap_room":1,"bootstrap_pair_key":"k","kv_transfer_params":{},"ec_transfer_params":{},"vllm_xargs":{},"data_parallel_rank":3,"a":1}`,
			prefill: `{"a":1,` + first, decode: `{"a":1,` + second + meets},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, d, err := engine.Pair(New(), []byte(c.in), c.chat, room)
			if err != nil {
				t.Fatal(err)
			}
			if string(p) != c.prefill || string(d) != c.decode {
				t.Fatalf("prefill %s\nwant    %s\ndecode  %s\nwant    %s", p, c.prefill, d, c.decode)
			}
		})
	}
}

func TestPairRefuses(t *testing.T) {
	for name, k := range map[string]struct {
		body string
		r    engine.Rendezvous
	}{
		"list": {`[1]`, room}, "broken": {`{`, room}, "no host": {`{}`, engine.Rendezvous{Port: 1}},
		"no port": {`{}`, engine.Rendezvous{Host: "h"}}, "port": {`{}`, engine.Rendezvous{Host: "h", Port: 70000}},
		"room": {`{}`, engine.Rendezvous{Host: "h", Port: 1, Room: 1 << 63}},
	} {
		if _, _, err := engine.Pair(New(), []byte(k.body), false, k.r); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}

func TestOneLeg(t *testing.T) {
	d := New()
	if !d.Concurrent() || d.Name() != "sglang" {
		t.Fatal(d.Name())
	}
	got, err := engine.Decode(d, []byte(`{"prompt":"x","max_completion_tokens":7,"rid":"r","stream":false,"bootstrap_host":"h","temperature":0.70}`), nil)
	if want := `{"prompt":"x","stream":false,"temperature":0.70,"max_tokens":7}`; err != nil || string(got) != want {
		t.Fatalf("%s %v", got, err)
	}
	h := &engine.Handoff{Raw: json.RawMessage(`{}`)}
	if _, err := engine.Decode(d, []byte(`{}`), h); !errors.Is(err, engine.ErrConcurrent) {
		t.Fatal(err)
	}
	if _, err := engine.Prefill(d, []byte(`{}`)); !errors.Is(err, engine.ErrConcurrent) {
		t.Fatal(err)
	}
	var he *engine.HandoffError
	if err := d.Check(h, engine.Expect{}); !errors.As(err, &he) {
		t.Fatal(err)
	}
	if _, u, err := d.ParseHandoff([]byte(`{"usage":{"prompt_tokens":3}}`), time.Time{}); !errors.Is(err, engine.ErrNoHandoff) || u.PromptTokens != 3 {
		t.Fatal(u, err)
	}
	for _, in := range []string{``, `{}`, `[]`} {
		if _, _, err := d.ParseHandoff([]byte(in), time.Time{}); err == nil || errors.Is(err, engine.ErrNoHandoff) {
			t.Fatal(in, err)
		}
	}
}

// The recorded legs come out of the client's bodies that caused them.
func TestPairEqualsRecordedLegs(t *testing.T) {
	clients := map[string]string{
		"sg-1": `{"prompt": "hello", "max_completion_tokens": 4, "model": "demo/model-1b"}`,
		"sg-2": `{"prompt": "hello", "max_tokens": 3, "stream": true, "model": "demo/model-1b"}`,
	}
	seen := 0
	for _, leg := range recordedLegs(t) {
		client, ok := clients[leg.Headers["x-request-id"]]
		if !ok {
			continue
		}
		seen++
		var want struct {
			Host string `json:"bootstrap_host"`
			Port int    `json:"bootstrap_port"`
			Room uint64 `json:"bootstrap_room"`
			ID   string `json:"rid"`
		}
		if err := json.Unmarshal(leg.Body, &want); err != nil {
			t.Fatal(err)
		}
		p, d, err := engine.Pair(New(), []byte(client), false, engine.Rendezvous{Host: want.Host, Port: want.Port, Room: want.Room})
		if err != nil {
			t.Fatal(err)
		}
		body := d
		if leg.IID == "p0" {
			body = p
		}
		if body, err = New().(engine.Tagger).Tag(body, want.ID); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(members(t, leg.Body), members(t, body)); diff != "" {
			t.Errorf("%s %s: %s", leg.IID, leg.Headers["x-request-id"], diff)
		}
	}
	if seen != 4 {
		t.Fatalf("%d legs recorded", seen)
	}
}

type recordedLeg struct {
	IID     string
	Headers map[string]string
	Body    json.RawMessage
}

func recordedLegs(t *testing.T) (legs []recordedLeg) {
	t.Helper()
	raw, err := os.ReadFile("testdata/legs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var leg recordedLeg
		if err := json.Unmarshal(lines.Bytes(), &leg); err != nil {
			t.Fatal(err)
		}
		legs = append(legs, leg)
	}
	return legs
}

// members keeps numbers as written: a room does not fit a float.
func members(t *testing.T, b []byte) map[string]string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = string(v)
	}
	return out
}

func TestSplittable(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"prompt":"x"}`: true, `{"prompt":[1,2]}`: true, `{"prompt":[ 7 ],"n":1}`: true, `{"n":null,"best_of":1}`: true,
		`{"prompt":["a","b"]}`: false, `{"prompt":[[1],[2]]}`: false, `{"prompt":[]}`: false, `{"n":2}`: false, `{"best_of":3}`: false,
		`{"prompt_logprobs":0}`: false, `{"prompt_logprobs":null}`: true, `{"input_embeds":[[0.5]]}`: false,
		`{"return_hidden_states":true}`: false, `{"return_hidden_states":false}`: true,
		`{"logprob_start_len":0}`: false, `{"logprob_start_len":-1}`: true,
		`{"echo":true}`: true, `{"echo":true,"logprobs":1}`: false, `{"echo":true,"logprobs":null}`: true,
		`{"use_beam_search":true}`: false, `[]`: false, `{`: false,
	} {
		if reason, got := engine.Splittable(New(), []byte(in)); got != ok || (reason == "") != ok {
			t.Errorf("%s: %v %q", in, got, reason)
		}
	}
}

// Whatever the client sends, both legs meet in the room given and nowhere else, and the members
// that shape prompt and first token are the same on both.
func TestLegsAgree(t *testing.T) {
	keys := rapid.SampledFrom([]string{"prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options",
		"rid", "bootstrap_room", "bootstrap_host", "kv_transfer_params", "seed", "temperature", "logprobs", "response_format", "é"})
	vals := rapid.SampledFrom([]string{`1`, `"required"`, `null`, `{"a":[1,2.50]}`, `true`, `[1,2]`, `12345678901234567890`})
	rapid.Check(t, func(t *rapid.T) {
		raw := map[string]json.RawMessage{}
		for k, v := range rapid.MapOf(keys, vals).Draw(t, "body") {
			raw[k] = json.RawMessage(v)
		}
		body, _ := json.Marshal(raw)
		p, d, err := engine.Pair(New(), body, false, room)
		if err != nil {
			t.Fatal(err)
		}
		var pm, dm map[string]json.RawMessage
		if json.Unmarshal(p, &pm) != nil || json.Unmarshal(d, &dm) != nil {
			t.Fatalf("%s %s", p, d)
		}
		for _, m := range []map[string]json.RawMessage{pm, dm} {
			if string(m["bootstrap_room"]) != "6930080892431312599" || string(m["bootstrap_host"]) != `"10.0.0.11"` ||
				m["rid"] != nil || m["kv_transfer_params"] != nil || m["max_completion_tokens"] != nil && !null(raw["max_completion_tokens"]) {
				t.Fatalf("%s %s", p, d)
			}
		}
		for _, k := range []string{"prompt", "messages", "seed", "temperature", "logprobs", "response_format", "é"} {
			if string(pm[k]) != string(dm[k]) || string(pm[k]) != string(raw[k]) {
				t.Fatalf("%s differs: %s %s", k, pm[k], dm[k])
			}
		}
	})
}

func FuzzPair(f *testing.F) {
	for _, s := range []string{`{"prompt":"x","max_completion_tokens":4}`, `{"a":{"b":"}"},"rid":"\u0072"}`, `[]`, `{"rid":1,"r\u0069d":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, d, err := engine.Pair(New(), body, true, room)
		if err != nil {
			return
		}
		if !json.Valid(p) || !json.Valid(d) || members(t, p)["rid"]+members(t, d)["rid"] != "" {
			t.Fatalf("%s %s", p, d)
		}
	})
}

func TestTag(t *testing.T) {
	got, err := New().(engine.Tagger).Tag([]byte(`{"a":0.70,"rid":"x"}`), "id\"7")
	if err != nil || string(got) != `{"a":0.70,"rid":"id\"7"}` {
		t.Fatalf("%s %v", got, err)
	}
	if _, err := New().(engine.Tagger).Tag([]byte(strings.Repeat("[", 3)), "x"); err == nil {
		t.Fatal("no object was tagged")
	}
}

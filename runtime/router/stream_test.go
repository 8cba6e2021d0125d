package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSplitterKeepsEveryByteHoweverReadsFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r\n"}
		var want []string
		for range rapid.IntRange(0, 6).Draw(t, "events") {
			want = append(want, rapid.SampledFrom([]string{"data: {\"a\":1}", ": note", "event: x\ndata: y", "data: a\r\ndata: b", "data: ☃"}).Draw(t, "event")+rapid.SampledFrom(ends).Draw(t, "end"))
		}
		tail := rapid.SampledFrom([]string{"", "data: {\"to", "x"}).Draw(t, "tail")
		all := []byte(strings.Join(want, "") + tail)
		var s splitter
		var got []string
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "read")
			read := bytes.Clone(all[:n])
			s.add(read)
			all = all[n:]
			for e := s.next(); e != nil; e = s.next() {
				got = append(got, string(e))
			}
			clear(read) // the next read has the same room
		}
		// A CR at the very end waits for a LF that may follow.
		rest := string(s.rest)
		if strings.Join(got, "")+rest != strings.Join(want, "")+tail {
			t.Fatalf("bytes were lost: %q then %q, want %q", got, rest, want)
		}
		if tail != "" && strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("events %q, want %q", got, want)
		}
	})
}

func TestParts(t *testing.T) {
	for event, want := range map[string][2]string{
		"data: x\n\n": {"", "x"}, "data:x\r\n\r\n": {"", "x"}, "event: e\ndata: {\"a\":1}\nid: 3\n\n": {"e", `{"a":1}`},
		"data: a\ndata: b\nevent:late\n\n": {"late", "a\nb"}, ": c\n\n": {"", ""}, "data:  two\n\n": {"", " two"}, "event: alone\n\n": {"alone", ""},
	} {
		if name, data := parts([]byte(event)); [2]string{string(name), string(data)} != want {
			t.Errorf("%q: %q %q, want %q", event, name, data, want)
		}
	}
}

func formOf(deep bool) []byte {
	if deep {
		return nil
	}
	return textForm
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		payload string
		deep    bool
		want    kind
	}{
		{`{"object":"error","message":"worker exploded","code":500}`, false, kindError},
		{`{"message":"worker exploded"}`, false, kindError},
		{`{"detail":"Not Found"}`, true, kindError},
		{`{"message":"x","choices":[{"text":"y"}]}`, false, kindToken},
		{`{"choices":[{"index":0,"text":"a wo`, false, kindTorn},
		{`{"choices":[{"index":0,"text":"a wo`, true, kindTorn},
		{`not json`, false, kindTorn},
		{`[DONE]`, false, kindDone},
		{` [DONE]`, true, kindDone},
		{`{"choices":[{"index":0,"text":"[DONE]","finish_reason":null}]}`, false, kindToken},
		{`{"choices":[{"index":0,"text":"say \"error\" now","finish_reason":null}]}`, false, kindToken},
		{`{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, true, kindOther},
		{`{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}`, true, kindToken},
		{`{"choices":[{"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}`, true, kindToken},
		{`{"choices":[{"text":"","finish_reason":"stop"}]}`, true, kindToken},
		{`{"choices":[{"text":"","finish_reason":"abort"}]}`, false, kindError},
		{`{"choices":[{"index":0,"text":"","finish_reason":null},{"index":1,"text":"","finish_reason":"error"}]}`, false, kindError},
		{`{"error":{"message":"x"}}`, false, kindError},
		{`{"error":null,"choices":[{"text":"x"}]}`, true, kindToken},
		{`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, false, kindUsage},
		{`{"metrics":{}}`, true, kindOther},
		{`{broken`, true, kindTorn},
		{``, true, kindOther},
	} {
		if got, _ := classify(nil, []byte(c.payload), formOf(c.deep)); got != c.want {
			t.Errorf("%s (deep %v): %d, want %d", c.payload, c.deep, got, c.want)
		}
	}
	for event, want := range map[string]kind{"event: error\ndata: {\"x\":1}\n\n": kindError, "event: note\ndata: not json\n\n": kindOther, "event: error\n\n": kindError} {
		name, data := parts([]byte(event))
		if got, _ := classify(name, data, textForm); got != want {
			t.Errorf("%q: %d, want %d", event, got, want)
		}
	}
}

func TestAssembly(t *testing.T) {
	for name, c := range map[string]struct {
		chat, ids bool
		events    []string
		want      string
	}{
		"text": {false, false, []string{
			`{"id":"c","object":"text_completion","choices":[{"index":0,"text":"Hel","logprobs":{"tokens":["Hel"],"token_logprobs":[-1]},"finish_reason":null,"token_ids":[1]}]}`,
			`{"id":"c","choices":[{"index":0,"text":"lo","logprobs":{"tokens":["lo"],"token_logprobs":[-2]},"finish_reason":"length","stop_reason":null}],"new_field":7}`,
			`{"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`},
			`{"id":"c","new_field":7,"object":"text_completion","choices":[{"index":0,"text":"Hello","finish_reason":"length","stop_reason":null,"logprobs":{"token_logprobs":[-1,-2],"tokens":["Hel","lo"]}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`},
		"ids": {false, true, []string{`{"choices":[{"index":0,"text":"a","token_ids":[1,2],"prompt_token_ids":[9]}]}`, `{"choices":[{"index":0,"text":"b","token_ids":[3]}]}`},
			`{"object":"text_completion","choices":[{"index":0,"text":"ab","prompt_token_ids":[9],"finish_reason":"stop","logprobs":null,"token_ids":[1,2,3]}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`},
		"chat": {true, false, []string{
			`{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
			`{"id":"x","choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
			`{"id":"x","choices":[{"index":0,"delta":{"content":"☃ <b>"},"finish_reason":"stop"}]}`},
			`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"☃ <b>","reasoning_content":"hm"},"finish_reason":"stop","logprobs":null}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`},
		"tools": {true, false, []string{
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}},{"index":1,"function":{"arguments":"{}"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}]}`},
			`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls","logprobs":null}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`},
		"two choices": {false, false, []string{`{"choices":[{"index":1,"text":"b"}]}`, `{"choices":[{"index":0,"text":"a"}]}`},
			`{"object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":"stop","logprobs":null},{"index":1,"text":"b","finish_reason":"stop","logprobs":null}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`},
	} {
		a := newAssembly(c.chat, c.ids, 2)
		for _, e := range c.events {
			if err := add(a, e); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		got, err := a.answer(5, 2)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, c.want)
		}
	}
}

func add(a *assembly, payload string) error {
	c, ok := readChunk([]byte(payload))
	if !ok {
		return errors.New("no JSON object")
	}
	if err := c.check(outputOf(a.chat), a.most); err != nil {
		return err
	}
	return a.add(c)
}

func TestAssemblyRefuses(t *testing.T) {
	for _, e := range []string{`{`, `{"choices":3}`, `{"choices":[{"index":-1}]}`, `{"choices":[{"text":5}]}`, `{"choices":[{"delta":[]}]}`, `{"choices":[{"token_ids":7}]}`} {
		if add(newAssembly(true, true, 1), e) == nil {
			t.Errorf("accepted %s", e)
		}
	}
	if _, err := newAssembly(true, false, 2).answer(1, 1); err == nil {
		t.Error("an answer without choices")
	}
	a := newAssembly(true, false, 1)
	if err := add(a, `{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`); err != nil {
		t.Fatal(err)
	}
	if _, err := a.answer(1, 1); err == nil {
		t.Error("a tool call without id and name")
	}
}

func FuzzParseCall(f *testing.F) {
	for _, s := range []string{`{"prompt":"x","max_tokens":3,"stream":true}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"n":1}`,
		`{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`, `[1]`, `{"vllm_xargs":{"kv_transfer_params":1}}`, `{"tools":[{"type":"x"}]}`, ``} {
		f.Add(true, []byte(s))
		f.Add(false, []byte(s))
	}
	f.Fuzz(func(t *testing.T, chat bool, b []byte) {
		c, fail := parseCall(chat, b)
		if fail != nil {
			if fail.status != 400 || !json.Valid(fail.body()) {
				t.Fatalf("%+v", fail)
			}
			return
		}
		if !json.Valid(c.streamed(c.legs("m")).Edit(nil)) || c.estimate(3.8) < 1 || c.wanted < 0 {
			t.Fatalf("%+v", c)
		}
		if count := c.countBody("m"); count != nil && !json.Valid(count) {
			t.Fatalf("count body %s", count)
		}
	})
}

func FuzzEngineStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\ndata: [DONE]\n\n"), 7)
	f.Add([]byte(": c\r\n\r\ndata: {\"error\":{\"message\":\"x\"}}\r\r"), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size = max(1, size%64)
		var s splitter
		var got []byte
		a := newAssembly(true, true, 2)
		for in := b; len(in) > 0; {
			n := min(size, len(in))
			read := bytes.Clone(in[:n])
			s.add(read)
			in = in[n:]
			for e := s.next(); e != nil; e = s.next() {
				got = append(got, e...)
				name, p := parts(e)
				_, _ = classify(name, p, nil)
				_, _ = classify(name, p, textForm)
				_ = add(a, string(p))
			}
			clear(read)
		}
		if !bytes.Equal(append(got, s.rest...), b) {
			t.Fatal("bytes were lost")
		}
		if out, err := a.answer(1, 1); err == nil && !json.Valid(out) {
			t.Fatalf("invalid answer %s", out)
		}
	})
}

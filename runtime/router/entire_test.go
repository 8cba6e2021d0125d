package router

import (
	"strings"
	"testing"
)

// said is the one choice of a chat.
func said(message string) string {
	return `{"index":0,"finish_reason":"stop","message":` + message + `}`
}

// An answer that comes whole is judged like one that comes in events: with status 200 it may be an error.
func TestEntire(t *testing.T) {
	const one, two = `{"index":0,"text":"a","finish_reason":"stop"}`, `{"index":1,"text":"b","finish_reason":"length"}`
	for _, c := range []struct {
		body string
		chat bool
		want string // part of the error; "" = sound
	}{
		{`{"choices":[` + one + `,` + two + `]}`, false, ""},
		{`{"choices":[` + two + `,` + one + `],"usage":{}}`, false, ""},
		{`{"choices":[` + one + `]}`, false, "1 choices of the 2"},
		{`{"error":null,"choices":[` + one + `,` + two + `]}`, false, ""},
		{`{"choices":[` + said(`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`) + `]}`, true, ""},
		{`{"choices":[` + said(`{"content":"","reasoning":"so"}`) + `]}`, true, ""},
		{`{"choices":[` + said(`{"content":5}`) + `]}`, true, "content"},
		{`{"choices":[` + said(`{"content":["x"]}`) + `]}`, true, "content"},
		{`{"choices":[` + said(`{"content":"a","role":5}`) + `]}`, true, "role"},
		{`{"choices":[` + said(`{"content":"a","refusal":5}`) + `]}`, true, "refusal"},
		{`{"choices":[` + said(`{"tool_calls":"x"}`) + `]}`, true, "tool_calls"},
		{`{"choices":[` + said(`{"tool_calls":[5]}`) + `]}`, true, "tool_calls"},
		{`{"choices":[` + said(`{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}`) + `]}`, true, "tool_calls"},
		{`{"choices":[` + said(`{}`) + `]}`, true, "it is none"},
		{`{"choices":[` + said(`"a"`) + `]}`, true, "it is none"},
		{`{"choices":[` + said(`{"content":"a"},"delta":{"content":"b"}`) + `]}`, true, "delta stands"},
		{`{"choices":[` + one + `,{"index":1,"text":"b","finish_reason":"stop","error":{"message":"bad"}}]}`, false, "choice 1 holds an error"},
		{`{"choices":[` + one + `,{"index":1,"text":"b","finish_reason":{"type":"abort"}}]}`, false, "the finish reason of choice 1"},
		{`{"choices":[` + one + `,{"index":1,"text":"b","finish_reason":""}]}`, false, "the finish reason of choice 1"},
		{`{"choices":[` + one + `,{"text":"b","finish_reason":"stop"}]}`, false, "does not say which"},
		{`{"choices":[` + one + `,{"index":1,"text":"b","finish_reason":"stop","logprobs":"x"}]}`, false, "logprobs"},
		{`{"error":{"message":"boom 192.0.2.1:80"}}`, false, "error in an answer"},
		{`{"object":"error","message":"boom"}`, false, "error in an answer"},
		{`{"detail":"boom"}`, false, "error in an answer"},
		{`{"error":"boom","choices":[` + one + `]}`, false, "error in an answer"},
		{`{"id":"x"}`, false, "0 choices"},
		{`{"choices":[]}`, false, "0 choices"},
		{`{"choices":7}`, false, "no list"},
		{`{"choices":["x"]}`, false, "no list"},
		{`{"choices":[` + one + `,` + one + `]}`, false, "choice 0 comes twice"},
		{`{"choices":[` + one + `,{"index":2,"text":"c","finish_reason":"stop"}]}`, false, "index 2 is of none of the 2"},
		{`{"choices":[{"index":-1,"text":"c","finish_reason":"stop"}]}`, false, "index -1"},
		{`{"choices":[{"index":"0","text":"c","finish_reason":"stop"}]}`, false, `index "0"`},
		{`{"choices":[{"index":0,"text":5,"finish_reason":"stop"},` + two + `]}`, false, "read text"},
		{`{"choices":[{"index":0,"finish_reason":"stop"},` + two + `]}`, false, "read text"},
		{`{"choices":[` + one + `,` + two + `]}`, true, "text stands in place of message"},
		{`{"choices":[{"index":0,"message":{},"finish_reason":"stop"},` + two + `]}`, false, "message stands"},
		{`{"choices":[{"index":0,"text":"a","finish_reason":null},` + two + `]}`, false, "no finish reason"},
		{`{"choices":[{"index":0,"text":"a","finish_reason":"error"},` + two + `]}`, false, `finish reason "error"`},
	} {
		k, ok := readChunk([]byte(c.body))
		if !ok {
			t.Fatal(c.body)
		}
		most := 2
		if c.chat && len(k.choices) == 1 {
			most = 1
		}
		err := k.entire(c.chat, most)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

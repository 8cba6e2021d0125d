package router

import (
	"strings"
	"testing"
)

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
		{`{"choices":[` + one + `]}`, false, ""},
		{`{"error":null,"choices":[` + one + `]}`, false, ""},
		{`{"choices":[{"index":0,"message":{"content":null},"finish_reason":"tool_calls"}]}`, true, ""},
		{`{"error":{"message":"boom 192.0.2.1:80"}}`, false, "error in an answer"},
		{`{"object":"error","message":"boom"}`, false, "error in an answer"},
		{`{"detail":"boom"}`, false, "error in an answer"},
		{`{"error":"boom","choices":[` + one + `]}`, false, "error in an answer"},
		{`{"id":"x"}`, false, "no choice"},
		{`{"choices":[]}`, false, "no choice"},
		{`{"choices":7}`, false, "no list"},
		{`{"choices":["x"]}`, false, "no list"},
		{`{"choices":[` + one + `,` + one + `]}`, false, "choice 0 comes twice"},
		{`{"choices":[` + one + `,{"index":2,"text":"c","finish_reason":"stop"}]}`, false, "index 2 is of none of the 2"},
		{`{"choices":[{"index":-1,"text":"c","finish_reason":"stop"}]}`, false, "index -1"},
		{`{"choices":[{"index":"0","text":"c","finish_reason":"stop"}]}`, false, `index "0"`},
		{`{"choices":[{"index":0,"text":5,"finish_reason":"stop"}]}`, false, "read text"},
		{`{"choices":[{"index":0,"finish_reason":"stop"}]}`, false, "read text"},
		{`{"choices":[` + one + `]}`, true, "of the other route"},
		{`{"choices":[{"index":0,"message":{},"finish_reason":"stop"}]}`, false, "read text"},
		{`{"choices":[{"index":0,"text":"a","finish_reason":null}]}`, false, "no finish reason"},
		{`{"choices":[{"index":0,"text":"a","finish_reason":"error"},` + two + `]}`, false, `finish reason "error"`},
	} {
		k, ok := readChunk([]byte(c.body))
		if !ok {
			t.Fatal(c.body)
		}
		err := k.entire(c.chat, 2)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
}

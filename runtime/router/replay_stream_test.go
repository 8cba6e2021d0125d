package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// scriptStream writes one decode stream. What is written goes out at the next flush.
type scriptStream struct {
	w http.ResponseWriter
	b *scriptBody
}

// decode answers leg 2, or an unsplit call, as a stream.
func (e *scriptEngine) decode(w http.ResponseWriter, r *http.Request, b *scriptBody) {
	f := e.fault(b)
	if f != nil && f.status > 0 && f.prefill == nil {
		refuse(w, f.status, "InternalServerError", "Internal server error")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &scriptStream{w, b}
	switch {
	case f != nil && f.decode != nil:
		f.decode(e, s, r)
	case b.IntervalS > 0:
		// A pace is not kept: what the recorded deadline let through comes at once, then nothing.
		s.tokens(0, len(scriptWords), 0)
		s.hold(r)
	default:
		s.tokens(0, b.tokens(), 0)
		s.finish()
	}
}

func (s *scriptStream) flush() { _ = http.NewResponseController(s.w).Flush() }

func (s *scriptStream) raw(text string) { _, _ = s.w.Write([]byte(text)) }

// hold leaves the stream open and silent until the router leaves.
func (s *scriptStream) hold(r *http.Request) {
	s.flush()
	<-r.Context().Done()
}

// event writes one chunk with the given choices and further members.
func (s *scriptStream) event(choices, more string) {
	object := "text_completion"
	if s.b.chat {
		object = "chat.completion.chunk"
	}
	s.raw(fmt.Sprintf(`data: {"id":%q,"object":%q,"created":1764430000,"model":%q,"choices":[%s]%s}`+"\n\n", s.b.answerID(), object, replayModel, choices, more))
}

// tokens writes the words from first on; the answer ends with word number end, unless 0.
// A chat starts with its role.
func (s *scriptStream) tokens(first, n, more int) {
	if s.b.chat && first == 0 {
		s.event(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`, "")
	}
	for i := first; i < first+n; i++ {
		s.token(i, scriptWords[i%len(scriptWords)], i+1 == s.b.tokens() && more == 0)
	}
}

func (s *scriptStream) token(i int, word string, last bool) {
	finish, ids := "null", ""
	if last {
		finish = `"length"`
	}
	if s.b.IDs {
		ids = fmt.Sprintf(`,"token_ids":[%d]`, 1000+i)
		if i == 0 {
			p, _ := json.Marshal(s.b.promptTokens())
			ids += `,"prompt_token_ids":` + string(p)
		}
	}
	text := `"text":` + string(quote(word))
	if s.b.chat {
		text = `"delta":{"content":` + string(quote(word)) + `}`
	}
	s.event(fmt.Sprintf(`{"index":0,%s,"logprobs":null,"finish_reason":%s,"stop_reason":null%s}`, text, finish, ids), "")
}

// finish writes the usage, if the call asked for it, and the terminator.
func (s *scriptStream) finish() {
	if s.b.Options["include_usage"] {
		s.event("", `,"usage":`+s.b.usage(s.b.tokens()))
	}
	s.raw("data: [DONE]\n\n")
}

// toolCall is a chat answer that calls a function, in four tokens.
func (s *scriptStream) toolCall() {
	s.event(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`, "")
	for i, part := range []string{`"id":"call_1","type":"function","function":{"name":"get_weather","arguments":""}`,
		`"function":{"arguments":"{\"city\": "}`, `"function":{"arguments":"\"Oslo\"}"}`} {
		ids := ""
		if s.b.IDs {
			ids = fmt.Sprintf(`,"token_ids":[%d]`, 1000+i)
		}
		s.event(`{"index":0,"delta":{"tool_calls":[{"index":0,`+part+`}]},"logprobs":null,"finish_reason":null`+ids+`}`, "")
	}
	s.event(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null}`, "")
	s.finish()
}

// replayEvents cuts a stream into its events, without the blank lines.
func replayEvents(stream string) []string {
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(stream, "\r\n", "\n"), "\n\n"), "\n\n")
}

package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// scriptWords are the answer, one token each; a longer one starts over.
var scriptWords = []string{"Hel", "lo", ", ", "na", "rw", "hal", " ☃", "!"}

// scriptBody is what a scripted engine reads of a call.
type scriptBody struct {
	Model     string                     `json:"model"`
	Prompt    json.RawMessage            `json:"prompt"`
	Messages  []struct{ Content string } `json:"messages"`
	Most      int                        `json:"max_tokens"`
	N         int                        `json:"n"`
	MostChat  int                        `json:"max_completion_tokens"`
	Stream    bool                       `json:"stream"`
	Options   map[string]bool            `json:"stream_options"`
	IDs       bool                       `json:"return_token_ids"`
	Transfer  json.RawMessage            `json:"kv_transfer_params"`
	Fault     scriptFault                `json:"fault"`
	IntervalS float64                    `json:"interval_s"`

	id   string // the call's x-request-id
	chat bool
}

// promptTokens is one token a character.
func (b *scriptBody) promptTokens() (ids []int) {
	var text string
	if json.Unmarshal(b.Prompt, &ids) == nil && ids != nil {
		return ids
	}
	_ = json.Unmarshal(b.Prompt, &text)
	for _, m := range b.Messages {
		text += m.Content
	}
	for _, r := range text {
		ids = append(ids, int(r))
	}
	return ids
}

// poisoned prompts cannot be encoded.
func (b *scriptBody) poisoned() bool { return strings.Contains(string(b.Prompt), "💣") }

func (b *scriptBody) tokens() int {
	if n := max(b.Most, b.MostChat); n > 0 {
		return n
	}
	return 16
}

func (b *scriptBody) answerID() string {
	if b.chat {
		return "chatcmpl-" + b.id
	}
	return "cmpl-" + b.id
}

func (b *scriptBody) usage(n int) string {
	p := len(b.promptTokens())
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, p, p+n, n)
}

// generate answers a prefill leg, a decode leg or an unsplit call.
func (e *scriptEngine) generate(w http.ResponseWriter, r *http.Request, b *scriptBody) {
	if b.poisoned() {
		refuse(w, 400, "BadRequestError", "prompt cannot be encoded, see http://"+r.Host+"/docs")
		return
	}
	var t struct {
		Give bool   `json:"do_remote_decode"`
		Take bool   `json:"do_remote_prefill"`
		ID   string `json:"remote_request_id"`
	}
	if len(b.Transfer) > 0 && json.Unmarshal(b.Transfer, &t) != nil {
		e.unscripted(w, "transfer parameters %s", b.Transfer)
		return
	}
	switch {
	case t.Give && t.Take, b.Stream && t.Give:
		e.unscripted(w, "a leg that gives and takes, or gives in a stream")
	case t.Give:
		e.prefill(w, r, b)
	case t.Take && !e.take(t.ID, b.Transfer):
		e.unscripted(w, "a handoff that was not given out, was changed or was used before: %s", b.Transfer)
	case b.Stream:
		e.decode(w, r, b)
	default:
		e.plain(w, b, "")
	}
}

// take uses up a handoff.
func (e *scriptEngine) take(id string, raw json.RawMessage) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ok := string(e.issued[id]) == string(raw) && !e.used[id]
	e.used[id] = true
	return ok
}

// prefill answers leg 1: one token and the handoff.
func (e *scriptEngine) prefill(w http.ResponseWriter, r *http.Request, b *scriptBody) {
	if b.tokens() != 1 {
		e.unscripted(w, "a prefill of %d tokens", b.tokens())
		return
	}
	f := e.fault(b)
	if f == nil || f.prefill == nil {
		e.plain(w, b, e.handoff(b, false))
		return
	}
	f.prefill(e, w, r, b)
}

// handoff makes a descriptor. flat gives the recorded shape, which current engines refuse.
func (e *scriptEngine) handoff(b *scriptBody, flat bool) string {
	n := len(b.promptTokens())
	blocks := make([]int, (n+15)/16)
	for i := range blocks {
		blocks[i] = i
	}
	list, _ := json.Marshal(blocks)
	id := b.answerID() + "-0"
	head := fmt.Sprintf(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":%%s,"remote_engine_id":"%s-engine","remote_request_id":"%s","remote_host":"10.0.0.11","remote_port":5600,"tp_size":1`, e.iid, id)
	d := fmt.Sprintf(head, list) + "}"
	if !flat {
		d = fmt.Sprintf(head, "["+string(list)+"]") + fmt.Sprintf(`,"dcp_size":1,"pp_size":1,"remote_num_tokens":%d,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`, n)
	}
	e.mu.Lock()
	e.issued[id] = json.RawMessage(d)
	e.mu.Unlock()
	return d
}

// plain is a whole answer, with a handoff unless it is "".
func (e *scriptEngine) plain(w http.ResponseWriter, b *scriptBody, handoff string) {
	var text strings.Builder
	n := b.tokens()
	for i := range n {
		text.WriteString(scriptWords[i%len(scriptWords)])
	}
	object, key, value := "text_completion", "text", quote(text.String())
	if b.chat {
		object, key = "chat.completion", "message"
		value = json.RawMessage(`{"role":"assistant","content":` + string(value) + `}`)
	}
	if handoff != "" {
		handoff = `,"kv_transfer_params":` + handoff
	}
	var choices []string
	for i := range max(1, b.N) {
		choices = append(choices, fmt.Sprintf(`{"index":%d,%q:%s,"logprobs":null,"finish_reason":"length","stop_reason":null}`, i, key, value))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":%q,"object":%q,"created":1764430000,"model":%q,"choices":[%s],"usage":%s%s}`,
		b.answerID(), object, replayModel, strings.Join(choices, ","), b.usage(n), handoff)
}

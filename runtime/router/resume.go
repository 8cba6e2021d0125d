package router

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// maxContinuations of one stream.
const maxContinuations = 3

// defaultCompletion is how many tokens an engine makes of a completion without a limit.
const defaultCompletion = 16

// continuation is what a broken stream needs to go on exactly: the token ids of its prompt
// and of the text that the client has. It exists for requests that the router may continue.
type continuation struct {
	prompt  []byte   // JSON array of token ids as the engine wrote it
	made    [][]byte // ids whose text was sent
	fresh   [][]byte // ids whose text is still to come
	before  int      // ids made by the legs before this one
	id      []byte   // of the answer's first event; later legs keep it
	created []byte
	count   int  // continuations so far
	running bool // this leg goes on where another one broke
}

// shaping names what makes an answer depend on more than its own token ids, or shows them.
var shaping = []string{"logprobs", "top_logprobs", "prompt_logprobs", "echo", "stop", "tools", "tool_choice", "functions", "function_call", "response_format",
	"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "min_tokens", "frequency_penalty", "presence_penalty",
	"repetition_penalty", "bad_words", "suffix", "use_beam_search", "return_token_ids", "truncate_prompt_tokens", "audio", "modalities", "best_of", "prompt_embeds"}

// continuable reports whether a stream can go on exactly on another engine: one greedy
// sequence whose next token depends on the tokens before it alone.
func (c *call) continuable() bool {
	t, ok := c.get("temperature")
	if v, err := strconv.ParseFloat(string(t), 64); !ok || err != nil || v != 0 || !c.stream || c.choices != 1 {
		return false
	}
	for _, k := range shaping {
		if v, ok := c.get(k); ok && string(v) != "false" && string(v) != "0" && string(v) != "[]" {
			return false
		}
	}
	so, _ := c.get("stream_options")
	v, ok := splice.View(so).Get("continuous_usage_stats")
	return !ok || string(v) == "false"
}

// mayContinue reports whether a stream that broke after output goes on.
func (q *request) mayContinue(f *failure) bool {
	k := q.cont
	return k != nil && q.started && k.prompt != nil && k.count < maxContinuations && q.ctx.Err() == nil && f.terminal == journal.Failed && f.transient && len(k.made) > 0 &&
		(q.limit() == 0 || q.limit() > len(k.made))
}

// limit is the most tokens of the whole answer; 0 = as many as fit.
func (q *request) limit() int {
	if q.call.wanted == 0 && !q.chat {
		return defaultCompletion
	}
	return q.call.wanted
}

// goesOn reports whether the present leg goes on where another one broke.
func (k *continuation) goesOn() bool { return k != nil && k.running }

// goOn prepares the next leg: what was made so far belongs to the prompt.
func (k *continuation) goOn() {
	k.count++
	k.running, k.before, k.fresh = true, len(k.made), nil
}

// rest is the body of the leg that goes on, for /v1/completions.
func (q *request) rest(o splice.Object) (splice.Object, error) {
	k := q.cont
	ids := append([]byte{}, k.prompt[:len(k.prompt)-1]...)
	for _, id := range k.made {
		ids = append(append(ids, ','), id...)
	}
	set := []splice.Set{{Key: "prompt", Value: append(ids, ']')}}
	if n := q.limit(); n > 0 {
		set = append(set, splice.Set{Key: "max_tokens", Value: strconv.AppendInt(nil, int64(n-len(k.made)), 10)})
	}
	drop := func(key string) bool {
		switch key {
		case "messages", "max_completion_tokens", "max_tokens", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents":
			return true
		}
		return strings.HasPrefix(key, "reasoning") || key == "include_reasoning"
	}
	return splice.Parse(o.Edit(drop, set...))
}

// follow notes the token ids of an event, and returns the event as the client gets it:
// without the ids, and as part of one and the same answer.
func (k *continuation) follow(c *chunk, chat bool) []byte {
	if k.id == nil {
		k.id, _ = c.top.Get("id")
		k.created, _ = c.top.Get("created")
		k.id, k.created = slices.Clone(k.id), slices.Clone(k.created)
	}
	if p, ok := c.top.Get("prompt_token_ids"); ok && k.prompt == nil {
		k.learnPrompt(p)
	}
	if len(c.choices) != 1 {
		return k.frame(c, chat, nil)
	}
	choice := c.choices[0]
	if p, ok := choice.Get("prompt_token_ids"); ok && k.prompt == nil {
		k.learnPrompt(p)
	}
	if raw, ok := choice.Get("token_ids"); ok {
		ids, _ := splice.Elements(raw, 1<<20)
		for _, id := range ids {
			k.fresh = append(k.fresh, slices.Clone(id))
		}
	}
	if t, ok := splice.String(textOf(choice)); ok && t != "" && !strings.HasSuffix(t, string(utf8.RuneError)) {
		k.made, k.fresh = append(k.made, k.fresh...), nil
	}
	return k.frame(c, chat, choice.Edit(hidden))
}

func (k *continuation) learnPrompt(raw []byte) {
	if n, ints, ok := splice.Count(raw); ok && n > 0 && n == ints {
		k.prompt = slices.Clone(raw)
	}
}

func hidden(key string) bool { return key == "token_ids" || key == "prompt_token_ids" }

func textOf(choice splice.Object) []byte {
	if t, ok := choice.Get("text"); ok {
		return t
	}
	d, _ := choice.Get("delta")
	t, _ := splice.View(d).Get("content")
	return t
}

// frame writes an event with one choice, or without one.
func (k *continuation) frame(c *chunk, chat bool, choice []byte) []byte {
	var set []splice.Set
	if k.running {
		set = append(set, splice.Set{Key: "id", Value: k.id}, splice.Set{Key: "created", Value: k.created})
		if u := c.usage; u != nil {
			u.Prompt, u.Completion = u.Prompt-k.before, u.Completion+k.before
			raw, _ := c.top.Get("usage")
			v := splice.View(raw).Edit(nil, splice.Set{Key: "prompt_tokens", Value: strconv.AppendInt(nil, int64(u.Prompt), 10)},
				splice.Set{Key: "completion_tokens", Value: strconv.AppendInt(nil, int64(u.Completion), 10)})
			set = append(set, splice.Set{Key: "usage", Value: v})
		}
		if chat {
			set = append(set, splice.Set{Key: "object", Value: json.RawMessage(`"chat.completion.chunk"`)})
			choice = asChat(choice)
		}
	}
	if choice != nil {
		set = append(set, splice.Set{Key: "choices", Value: slices.Concat([]byte("["), choice, []byte("]"))})
	}
	return slices.Concat([]byte("data: "), c.top.Edit(hidden, set...), []byte("\n\n"))
}

// asChat turns the choice of a completion into one of a chat.
func asChat(choice []byte) []byte {
	if choice == nil {
		return nil
	}
	o := splice.View(choice)
	text, _ := o.Get("text")
	delta := slices.Concat([]byte(`{"content":`), text, []byte("}"))
	return o.Edit(func(k string) bool { return k == "text" }, splice.Set{Key: "delta", Value: delta})
}

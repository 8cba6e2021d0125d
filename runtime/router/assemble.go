package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// assembly puts a buffered answer together from the events of a decode stream. Members it
// does not know are kept, the last value wins.
type assembly struct {
	chat    bool
	ids     bool // keep token ids
	most    int  // choices that were asked for
	top     fields
	choices map[int]*choice
}

// fields are JSON members in order of first appearance.
type fields struct {
	keys   []string
	values map[string]json.RawMessage
}

func (f *fields) set(key string, v json.RawMessage) {
	if f.values == nil {
		f.values = map[string]json.RawMessage{}
	}
	old, ok := f.values[key]
	if !ok {
		f.keys = append(f.keys, key)
	}
	if !ok || string(v) != "null" || len(old) == 0 {
		f.values[key] = slices.Clone(v)
	}
}

func (f *fields) write(b *strings.Builder, key string, v json.RawMessage) {
	if b.Len() > 1 {
		b.WriteByte(',')
	}
	b.Write(quote(key))
	b.WriteByte(':')
	b.Write(v)
}

type choice struct {
	other     fields // choice members beside those below
	message   fields // delta members beside those below
	texts     map[string]*strings.Builder
	order     []string
	role      string
	ids       []json.RawMessage
	logprobs  map[string][]json.RawMessage
	tools     map[int]*toolCall
	function  *toolCall
	hasTokens bool
}

type toolCall struct {
	id, kind, name string
	arguments      strings.Builder
}

func newAssembly(chat, ids bool, most int) *assembly {
	return &assembly{chat: chat, ids: ids, most: most, choices: map[int]*choice{}}
}

// outputOf is where an event has its output.
func outputOf(chat bool) string {
	if chat {
		return outDelta
	}
	return outText
}

func newChoice() *choice {
	return &choice{texts: map[string]*strings.Builder{}, logprobs: map[string][]json.RawMessage{}, tools: map[int]*toolCall{}}
}

// add merges one event that has passed its check.
func (a *assembly) add(e *chunk) error {
	for k, v := range e.top.All() {
		switch {
		case k == "choices" || k == "object":
		case !a.ids && k == "prompt_token_ids":
		default:
			a.top.set(k, v)
		}
	}
	for _, c := range e.choices {
		index, err := indexOf(c, a.most)
		if err != nil {
			return err
		}
		to := a.choices[index]
		if to == nil {
			to = newChoice()
			a.choices[index] = to
		}
		if err := to.merge(c, a.ids); err != nil {
			return err
		}
	}
	return nil
}

func (c *choice) merge(from splice.Object, ids bool) error {
	for k, v := range from.All() {
		var err error
		switch k {
		case "index":
		case "text":
			err = c.text("text", v)
		case "delta":
			err = c.delta(v)
		case "logprobs":
			err = c.logprob(v)
		case "token_ids":
			if ids {
				err = appendTo(&c.ids, v)
				c.hasTokens = true
			}
		case "prompt_token_ids":
			if ids {
				c.other.set(k, v)
			}
		default:
			c.other.set(k, v)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", k, err)
		}
	}
	return nil
}

func appendTo(list *[]json.RawMessage, v json.RawMessage) error {
	var more []json.RawMessage
	if err := json.Unmarshal(v, &more); err != nil {
		return err
	}
	*list = append(*list, more...)
	return nil
}

func (c *choice) text(key string, v json.RawMessage) error {
	if string(v) == "null" {
		return nil
	}
	s, ok := splice.String(v)
	if !ok {
		return errors.New("it is no string")
	}
	b := c.texts[key]
	if b == nil {
		b = &strings.Builder{}
		c.texts[key] = b
		c.order = append(c.order, key)
	}
	b.WriteString(s)
	return nil
}

func (c *choice) delta(raw json.RawMessage) error {
	if string(raw) == "null" {
		return nil
	}
	if raw[0] != '{' {
		return errors.New("it is no object")
	}
	for k, v := range splice.View(raw).All() {
		var err error
		switch k {
		case "role":
			if string(v) != "null" {
				err = json.Unmarshal(v, &c.role)
			}
		case "content", "reasoning", "reasoning_content", "refusal":
			err = c.text(k, v)
		case "tool_calls":
			err = c.toolCalls(v)
		case "function_call":
			err = c.functionCall(v)
		default:
			c.message.set(k, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

func (c *choice) logprob(raw json.RawMessage) error {
	var l map[string]json.RawMessage
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	for k, v := range l {
		if string(v) == "null" {
			continue
		}
		list := c.logprobs[k]
		if err := appendTo(&list, v); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		c.logprobs[k] = list
	}
	return nil
}

type wireCall struct {
	Index    *int      `json:"index"`
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Function *wireFunc `json:"function"`
}

type wireFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (t *toolCall) add(f *wireFunc) {
	if f != nil {
		t.name += f.Name
		t.arguments.WriteString(f.Arguments)
	}
}

func (c *choice) toolCalls(raw json.RawMessage) error {
	var calls []wireCall
	if err := json.Unmarshal(raw, &calls); err != nil {
		return err
	}
	for i, w := range calls {
		index := i
		if w.Index != nil {
			index = *w.Index
		}
		t := c.tools[index]
		if t == nil {
			t = &toolCall{kind: "function"}
			c.tools[index] = t
		}
		t.id += w.ID
		if w.Type != "" {
			t.kind = w.Type
		}
		t.add(w.Function)
	}
	return nil
}

func (c *choice) functionCall(raw json.RawMessage) error {
	var f *wireFunc
	if err := json.Unmarshal(raw, &f); err != nil || f == nil {
		return err
	}
	if c.function == nil {
		c.function = &toolCall{}
	}
	c.function.add(f)
	return nil
}

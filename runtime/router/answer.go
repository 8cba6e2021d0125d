package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// answer writes the whole body. measured counts tokens when the engine sent no usage.
func (a *assembly) answer(promptTokens, measured int) ([]byte, error) {
	if len(a.choices) == 0 {
		return nil, errors.New("stream held no choice")
	}
	var b strings.Builder
	b.WriteByte('{')
	for _, k := range a.top.keys {
		if k != "usage" {
			a.top.write(&b, k, a.top.values[k])
		}
	}
	object := `"text_completion"`
	if a.chat {
		object = `"chat.completion"`
	}
	a.top.write(&b, "object", json.RawMessage(object))
	var list []string
	for _, i := range indices(a.choices) {
		text, err := a.choices[i].write(i, a.chat, a.ids)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	a.top.write(&b, "choices", json.RawMessage("["+strings.Join(list, ",")+"]"))
	u := a.top.values["usage"]
	if len(u) == 0 || string(u) == "null" {
		u = json.RawMessage(fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, promptTokens, measured, promptTokens+measured))
	}
	a.top.write(&b, "usage", u)
	b.WriteByte('}')
	return []byte(b.String()), nil
}

func indices[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (c *choice) write(index int, chat, ids bool) (string, error) {
	var b strings.Builder
	b.WriteByte('{')
	f := &c.other
	f.write(&b, "index", json.RawMessage(fmt.Sprint(index)))
	if chat {
		m, err := c.writeMessage()
		if err != nil {
			return "", err
		}
		f.write(&b, "message", json.RawMessage(m))
	} else {
		text := ""
		if t := c.texts["text"]; t != nil {
			text = t.String()
		}
		f.write(&b, "text", quote(text))
	}
	if finish := f.values["finish_reason"]; len(finish) == 0 || string(finish) == "null" {
		f.set("finish_reason", json.RawMessage(`"stop"`))
	}
	for _, k := range f.keys {
		f.write(&b, k, f.values[k])
	}
	lp := json.RawMessage("null")
	if len(c.logprobs) > 0 {
		raw, err := json.Marshal(c.logprobs)
		if err != nil {
			return "", err
		}
		lp = raw
	}
	f.write(&b, "logprobs", lp)
	if ids && c.hasTokens {
		raw, err := json.Marshal(c.ids)
		if err != nil {
			return "", err
		}
		f.write(&b, "token_ids", raw)
	}
	b.WriteByte('}')
	return b.String(), nil
}

func (c *choice) writeMessage() (string, error) {
	var b strings.Builder
	b.WriteByte('{')
	m := &c.message
	role := c.role
	if role == "" {
		role = "assistant"
	}
	m.write(&b, "role", quote(role))
	content := json.RawMessage("null")
	if t := c.texts["content"]; t != nil && (t.Len() > 0 || len(c.tools) == 0) {
		content = quote(t.String())
	}
	m.write(&b, "content", content)
	for _, k := range c.order {
		if k != "content" && k != "text" {
			m.write(&b, k, quote(c.texts[k].String()))
		}
	}
	for _, k := range m.keys {
		m.write(&b, k, m.values[k])
	}
	if len(c.tools) > 0 {
		var calls []string
		for _, i := range indices(c.tools) {
			t := c.tools[i]
			if t.id == "" || t.name == "" {
				return "", errors.New("tool call without id or name")
			}
			calls = append(calls, fmt.Sprintf(`{"id":%s,"type":%s,"function":{"name":%s,"arguments":%s}}`,
				quote(t.id), quote(t.kind), quote(t.name), quote(t.arguments.String())))
		}
		m.write(&b, "tool_calls", json.RawMessage("["+strings.Join(calls, ",")+"]"))
	}
	if c.function != nil {
		m.write(&b, "function_call", json.RawMessage(fmt.Sprintf(`{"name":%s,"arguments":%s}`, quote(c.function.name), quote(c.function.arguments.String()))))
	}
	b.WriteByte('}')
	return b.String(), nil
}

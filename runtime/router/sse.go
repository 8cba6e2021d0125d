package router

import (
	"bytes"
	"encoding/json"
)

// splitter cuts a byte stream into server-sent events. It keeps what is not complete yet
// and returns events with their exact bytes, the blank line included.
type splitter struct {
	rest []byte
	scan int // bytes of rest that hold no event end
}

// add appends a read. The events that next returns stay valid until the following add.
func (s *splitter) add(b []byte) { s.rest = append(s.rest, b...) }

// next returns the next complete event, or nil.
func (s *splitter) next() []byte {
	end := eventEnd(s.rest, max(0, s.scan-3))
	if end < 0 {
		s.scan = len(s.rest)
		return nil
	}
	e := s.rest[:end]
	s.rest, s.scan = s.rest[end:], 0
	return e
}

// pending is how many bytes wait for the end of their event.
func (s *splitter) pending() int { return len(s.rest) }

// eventEnd returns the index after the first blank line at or after from, or -1. Lines end
// with LF, CRLF or CR. A CR at the very end is not decided yet: its LF may follow.
func eventEnd(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		n := newline(b, i)
		if n == 0 {
			continue
		}
		if n < 0 {
			return -1
		}
		m := newline(b, i+n)
		if m > 0 {
			return i + n + m
		}
		if m < 0 {
			return -1
		}
		i += n - 1
	}
	return -1
}

// newline returns the length of the line end at i, 0 for none, -1 for a CR that ends b.
func newline(b []byte, i int) int {
	switch {
	case i >= len(b):
		return 0
	case b[i] == '\n':
		return 1
	case b[i] == '\r' && i+1 == len(b):
		return -1
	case b[i] == '\r' && b[i+1] == '\n':
		return 2
	case b[i] == '\r':
		return 1
	}
	return 0
}

// data returns the payload of an event's data lines, joined by LF; nil for none. The usual
// event of one line is returned without a copy.
func data(event []byte) []byte {
	var out []byte
	first := true
	for len(event) > 0 {
		line := event
		if i := bytes.IndexAny(event, "\r\n"); i >= 0 {
			line, event = event[:i], event[i+1:]
		} else {
			event = nil
		}
		v, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		v = bytes.TrimPrefix(v, []byte(" "))
		if first {
			out, first = v, false
		} else {
			out = append(append(bytes.Clone(out), '\n'), v...)
		}
	}
	return out
}

// kind is what an event means to the relay.
type kind int

const (
	kindOther kind = iota // comment, metadata, anything without a token
	kindToken             // bears output
	kindUsage             // the closing usage event, without choices
	kindDone              // [DONE]
	kindError             // an error object in a 200 stream, or a choice that ended in failure
)

// chunk is what the relay reads of an event.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Usage   *usage          `json:"usage"`
	Choices []struct {
		Text   string  `json:"text"`
		Finish *string `json:"finish_reason"`
		Delta  struct {
			Content   *string         `json:"content"`
			Reasoning *string         `json:"reasoning"`
			Thinking  *string         `json:"reasoning_content"`
			Refusal   *string         `json:"refusal"`
			ToolCalls json.RawMessage `json:"tool_calls"`
			Function  json.RawMessage `json:"function_call"`
		} `json:"delta"`
	} `json:"choices"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// classify reads an event. Events of a running stream are mostly plain tokens: those are
// recognised by their bytes and not decoded (deep false); deep decodes whatever it is.
func classify(payload []byte, deep bool) (kind, *chunk) {
	switch {
	case len(payload) == 0:
		return kindOther, nil
	case string(bytes.TrimSpace(payload)) == "[DONE]":
		return kindDone, nil
	case !deep && !telling(payload):
		return kindToken, nil
	}
	var c chunk
	if json.Unmarshal(payload, &c) != nil {
		return kindOther, nil
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return kindError, &c
	}
	if len(c.Choices) == 0 {
		if c.Usage != nil {
			return kindUsage, &c
		}
		return kindOther, &c
	}
	k := kindOther
	for _, ch := range c.Choices {
		if ch.Finish != nil {
			if *ch.Finish == "error" || *ch.Finish == "abort" {
				return kindError, &c
			}
			k = kindToken
		}
		d := ch.Delta
		if ch.Text != "" || filled(d.Content) || filled(d.Reasoning) || filled(d.Thinking) || filled(d.Refusal) ||
			present(d.ToolCalls) || present(d.Function) {
			k = kindToken
		}
	}
	return k, &c
}

// telling reports whether a payload may hold something that the relay must decode.
func telling(p []byte) bool {
	return bytes.Contains(p, []byte(`"error"`)) || bytes.Contains(p, []byte(`"usage"`)) ||
		bytes.Count(p, []byte(`"finish_reason"`)) > bytes.Count(p, []byte(`"finish_reason":null`))
}

func filled(s *string) bool { return s != nil && *s != "" }

func present(v json.RawMessage) bool {
	return len(v) > 0 && string(v) != "null" && string(v) != "[]"
}

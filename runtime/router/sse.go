package router

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// splitter cuts a byte stream into server-sent events. It returns events with their exact
// bytes, the blank line included, and copies only what is not complete.
type splitter struct {
	rest []byte
	scan int    // bytes of rest that hold no event end
	kept []byte // what rest was copied to
}

// add gives it a read, after next returned nil. b stays as it is until it does so again.
func (s *splitter) add(b []byte) {
	if len(s.rest) == 0 {
		s.rest = b
		return
	}
	s.kept = append(s.kept, b...)
	s.rest = s.kept
}

// next returns the next complete event, valid until it returns nil, for none.
func (s *splitter) next() []byte {
	end := eventEnd(s.rest, max(0, s.scan-3))
	if end < 0 {
		s.scan = len(s.rest)
		s.keep()
		return nil
	}
	e := s.rest[:end]
	s.rest, s.scan = s.rest[end:], 0
	return e
}

// keep copies what is not complete. A buffer that a long event needed is not held for the next.
func (s *splitter) keep() {
	if len(s.rest) > 0 || cap(s.kept) <= leastRead {
		s.kept = append(s.kept[:0], s.rest...)
	} else {
		s.kept = nil
	}
	s.rest = s.kept
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

// parts returns an event's name, nil for none, and the payload of its data lines, joined by LF;
// nil for none. The usual event of one line is returned without a copy.
func parts(event []byte) (name, data []byte) {
	first := true
	for len(event) > 0 {
		line := event
		if i := bytes.IndexAny(event, "\r\n"); i >= 0 {
			line, event = event[:i], event[i+1:]
		} else {
			event = nil
		}
		if v, ok := bytes.CutPrefix(line, []byte("event:")); ok {
			name = bytes.TrimPrefix(v, []byte(" "))
			continue
		}
		v, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		v = bytes.TrimPrefix(v, []byte(" "))
		if first {
			data, first = v, false
		} else {
			data = append(append(bytes.Clone(data), '\n'), v...)
		}
	}
	return name, data
}

// kind is what an event means to the relay.
type kind int

const (
	kindOther kind = iota // comment, metadata, an event with a name, anything without a token
	kindToken             // bears output
	kindUsage             // the closing usage event, without choices
	kindDone              // [DONE]
	kindError             // an error in a 200 stream, or a choice that ended in failure
	kindTorn              // no JSON: words may be lost
)

// chunk is one decoded event: views over its bytes.
type chunk struct {
	top     splice.Object
	choices []splice.Object
	err     []byte // the error that it is; nil for none
	usage   *usage
	broken  bool   // choices are no list of objects
	finish  string // the last choice's finish_reason; "" = none
}

type usage struct {
	Prompt, Completion, Total int
	Cached                    int // tokens of the prompt that a cache held; -1 = not told
}

// maxChoices of one event.
const maxChoices = 1 << 10

// readChunk decodes an event; false when it is no JSON object.
func readChunk(payload []byte) (*chunk, bool) {
	top, err := splice.Parse(payload)
	if err != nil {
		return nil, false
	}
	c := &chunk{top: top}
	listed, blames := false, false
	for k, v := range top.All() {
		if string(v) == "null" {
			continue
		}
		switch k {
		case "error":
			c.err = v
		case "object":
			if string(v) == `"error"` { // as older engines word one
				c.err = payload
			}
		case "message", "detail", "code", "errors":
			blames = true
		case "usage":
			c.usage = readUsage(v)
		case "choices":
			listed = true
			list, ok := splice.Elements(v, maxChoices)
			c.broken, c.choices = !ok, c.choices[:0]
			for _, e := range list {
				c.broken = c.broken || e[0] != '{'
				c.choices = append(c.choices, splice.View(e))
			}
		}
	}
	if blames && !listed && c.usage == nil && c.err == nil {
		c.err = payload
	}
	for _, ch := range c.choices {
		if f, ok := ch.Get("finish_reason"); ok {
			if s, ok := splice.String(f); ok && !failed(c.finish) {
				c.finish = s
			}
		}
	}
	return c, true
}

// failed reports a finish reason that is none.
func failed(finish string) bool {
	return strings.EqualFold(finish, "error") || strings.EqualFold(finish, "abort")
}

func readUsage(v []byte) *usage {
	o := splice.View(v)
	number := func(key string) int {
		raw, _ := o.Get(key)
		n, _ := integer(raw)
		return max(0, n)
	}
	u := &usage{number("prompt_tokens"), number("completion_tokens"), number("total_tokens"), -1}
	details, _ := o.Get("prompt_tokens_details")
	if raw, ok := splice.View(details).Get("cached_tokens"); ok {
		if n, ok := integer(raw); ok {
			u.Cached = max(0, n)
		}
	}
	return u
}

// classify reads an event. Events of a running stream are mostly plain tokens: those are
// recognised by their bytes and not decoded, where form is how the output of the route begins; nil
// decodes whatever it is.
func classify(name, payload, form []byte) (kind, *chunk) {
	switch {
	case string(name) == "error":
		return kindError, &chunk{err: payload}
	case len(name) > 0 && string(name) != "message": // which no client takes for one of the answer
		return kindOther, nil
	case len(payload) == 0:
		return kindOther, nil
	case string(bytes.TrimSpace(payload)) == "[DONE]":
		return kindDone, nil
	case form != nil && payload[0] == '{' && !telling(payload, form) && splice.Valid(payload):
		return kindToken, nil
	}
	c, ok := readChunk(payload)
	switch {
	case !ok:
		return kindTorn, nil
	case len(c.err) > 0:
		return kindError, c
	case len(c.choices) == 0 && c.usage != nil:
		return kindUsage, c
	case failed(c.finish):
		return kindError, c
	}
	for _, ch := range c.choices {
		if ends(ch) || speaks(ch) {
			return kindToken, c
		}
	}
	return kindOther, c
}

// Members that hold a choice's output: in completions, in chat that streams, in chat that comes whole.
const (
	outText    = "text"
	outDelta   = "delta"
	outMessage = "message"
)

// check refuses choices that are none, none of the most that were asked for, that blame, or whose
// output is not where the client looks for it.
func (c *chunk) check(output string, most int) error {
	if c.broken {
		return errors.New("read choices: they are no list of objects")
	}
	for i, ch := range c.choices {
		index, err := indexOf(ch, most)
		if err != nil {
			return err
		}
		for _, before := range c.choices[:i] {
			if was, _ := indexOf(before, most); was == index {
				return fmt.Errorf("choice %d comes twice", index)
			}
		}
		for _, other := range []string{outText, outDelta, outMessage} {
			if v, ok := ch.Get(other); ok && other != output && string(v) != "null" {
				return fmt.Errorf("read choice: %s stands in place of %s", other, output)
			}
		}
		if v, ok := ch.Get("error"); ok && string(v) != "null" {
			return fmt.Errorf("choice %d holds an error: %.200s", index, v)
		}
		if v, ok := ch.Get("finish_reason"); ok && string(v) != "null" && !filled(v) {
			return fmt.Errorf("the finish reason of choice %d is %.40s", index, v)
		}
	}
	return nil
}

// indexOf is which of the most choices that were asked for a choice is.
func indexOf(choice splice.Object, most int) (int, error) {
	raw, ok := choice.Get("index")
	switch {
	case !ok && most > 1:
		return 0, fmt.Errorf("read choice: it does not say which of the %d it is", most)
	case !ok:
		return 0, nil
	}
	index, whole := integer(raw)
	if !whole || index < 0 || index >= most {
		return 0, fmt.Errorf("read choice: index %.20s is of none of the %d that were asked for", raw, most)
	}
	return index, nil
}

// ends reports whether a choice carries its end.
func ends(choice splice.Object) bool {
	v, ok := choice.Get("finish_reason")
	return ok && string(v) != "null"
}

// speaks reports whether a choice carries output.
func speaks(choice splice.Object) bool {
	for k, v := range choice.All() {
		switch k {
		case "text":
			if filled(v) {
				return true
			}
		case "delta":
			for k, v := range splice.View(v).All() {
				switch k {
				case "content", "reasoning", "reasoning_content", "refusal":
					if filled(v) {
						return true
					}
				case "tool_calls", "function_call":
					if string(v) != "null" && string(v) != "[]" {
						return true
					}
				}
			}
		}
	}
	return false
}

// filled reports a string that is not empty.
func filled(v []byte) bool { return len(v) > 2 && v[0] == '"' }

// telling reports whether a payload may hold something that the relay must decode.
func telling(p, form []byte) bool {
	return !usual(p, form) || bytes.Contains(p, []byte(`"error"`)) || bytes.Contains(p, []byte(`"usage"`)) ||
		bytes.Count(p, []byte(`"finish_reason"`)) > bytes.Count(p, []byte(`"finish_reason":null`))
}

var (
	textForm    = []byte(`"choices":[{"index":0,"text":"`)
	deltaForm   = []byte(`"choices":[{"index":0,"delta":{"content":"`)
	indexMember = []byte(`"index":`)
)

// usual reports whether a payload holds one choice, the first, written as engines do.
func usual(p, form []byte) bool {
	i := bytes.Index(p, form)
	return i >= 0 && !bytes.Contains(p[i+len(form):], indexMember)
}

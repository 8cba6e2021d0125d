package simulated

import (
	"strconv"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

// logprob is a value that depends on the token alone, for the shape's sake.
func logprob(id int32) float64 { return -0.1 - float64(uint32(id)%997)/250 }

func appendLogprob(b []byte, id int32) []byte {
	return strconv.AppendFloat(b, logprob(id), 'f', 4, 64)
}

// alternatives are the token itself and others, k in all.
func alternatives(id int32, k int) []int32 {
	out := []int32{id}
	for v := uint64(id); len(out) < k; v++ {
		if w := token.Word(v * 31); w != id {
			out = append(out, w)
		}
	}
	return out[:max(k, 0)]
}

func (c *call) appendLogprobs(b []byte, l *lane, items []item) []byte {
	if c.p.logprobs < 0 {
		return append(b, "null"...)
	}
	if c.p.chat {
		return c.appendChatLogprobs(b, items)
	}
	offsets, values, names, tops := []byte{'['}, []byte{'['}, []byte{'['}, []byte{'['}
	for _, it := range items {
		if !it.token {
			continue
		}
		if len(values) > 1 {
			offsets, values, names, tops = append(offsets, ','), append(values, ','), append(names, ','), append(tops, ',')
		}
		offsets = appendInt(offsets, int64(l.offset))
		l.offset += len(it.text)
		values = appendLogprob(values, it.id)
		names = appendString(names, textOf(it.id))
		tops = appendTop(tops, it.id, c.p.logprobs)
	}
	b = append(append(b, `{"text_offset":`...), offsets...)
	b = append(append(b, `],"token_logprobs":`...), values...)
	b = append(append(b, `],"tokens":`...), names...)
	b = append(append(b, `],"top_logprobs":`...), tops...)
	return append(b, "]}"...)
}

func appendTop(b []byte, id int32, k int) []byte {
	b = append(b, '{')
	for i, alt := range alternatives(id, max(k, 1)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, textOf(alt))
		b = appendLogprob(append(b, ':'), alt)
	}
	return append(b, '}')
}

func (c *call) appendChatLogprobs(b []byte, items []item) []byte {
	b = append(b, `{"content":[`...)
	first := true
	for _, it := range items {
		if !it.token {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendEntry(b, it.id)
		b = append(b, `,"top_logprobs":[`...)
		for i, alt := range alternatives(it.id, c.p.logprobs) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendEntry(b, alt), '}')
		}
		b = append(b, "]}"...)
	}
	return append(b, "]}"...)
}

// appendEntry writes an entry without its closing brace.
func appendEntry(b []byte, id int32) []byte {
	text := textOf(id)
	b = append(b, `{"token":`...)
	b = appendString(b, text)
	b = append(b, `,"logprob":`...)
	b = appendLogprob(b, id)
	b = append(b, `,"bytes":[`...)
	for i := range len(text) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, int64(text[i]))
	}
	return append(b, ']')
}

package simulated

import "github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"

// eventHead is what all events of the call begin with.
func (c *call) eventHead() []byte { return c.head("chat.completion.chunk") }

func (c *call) head(chat string) []byte {
	b := []byte(`data: {"id":`)
	b = appendString(b, c.id)
	b = append(b, `,"object":`...)
	if c.p.chat {
		b = appendString(b, chat)
	} else {
		b = append(b, `"text_completion"`...)
	}
	b = append(b, `,"created":`...)
	b = appendInt(b, c.created)
	b = append(b, `,"model":`...)
	b = appendString(b, c.srv.cfg.Model)
	return append(b, `,"choices":[`...)
}

// appendEvent renders one event for the tokens and the end in items.
func (c *call) appendEvent(b, head []byte, items []item) []byte {
	if c.srv.sgl() {
		return c.sglEvent(b, head, items)
	}
	l := items[0].lane
	first := !l.opened
	l.opened = true
	if first && c.p.chat {
		b = c.appendRole(append(b, head...), l)
	}
	b = append(b, head...)
	b = append(b, `{"index":`...)
	b = appendInt(b, int64(l.index))
	if c.p.chat {
		b = append(b, `,"delta":{"content":`...)
	} else {
		b = append(b, `,"text":`...)
	}
	text := ""
	if first && c.p.echo && !c.p.chat {
		text = token.Text(l.seq.Prompt)
	}
	for _, it := range items {
		text += it.text
		if it.token {
			l.count++
		}
	}
	b = appendString(b, text)
	if c.p.chat {
		b = append(b, '}')
	}
	b = append(b, `,"logprobs":`...)
	b = c.appendLogprobs(b, l, items)
	b = c.appendFinish(b, items)
	if !c.p.chat {
		b = append(b, `,"prompt_token_ids":`...)
		b = appendIDs(b, first && (c.p.returnIDs || c.p.echo), l.seq.Prompt)
	}
	b = append(b, `,"token_ids":`...)
	b = c.appendItemIDs(b, items)
	b = append(b, `}]`...)
	return c.closeEvent(b, items[len(items)-1].done)
}

func (c *call) closeEvent(b []byte, last bool) []byte {
	if c.p.continuous {
		b = append(b, `,"usage":`...)
		b = c.appendUsage(b, usagePlain)
	}
	if last && !c.p.includeUsage {
		b = append(b, `,"system_fingerprint":`...)
		b = appendString(b, c.srv.print)
	}
	return append(b, "}\n\n"...)
}

// appendRole is the first event of a chat answer; it is not a token.
func (c *call) appendRole(b []byte, l *lane) []byte {
	b = append(b, `{"index":`...)
	b = appendInt(b, int64(l.index))
	b = append(b, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	if c.p.continuous {
		b = append(b, `,"usage":`...)
		b = c.appendUsage(b, usagePlain)
	}
	b = append(b, `,"prompt_token_ids":`...)
	b = appendIDs(b, c.p.returnIDs, l.seq.Prompt)
	return append(b, ",\"prompt_text\":null}\n\n"...)
}

func (c *call) appendFinish(b []byte, items []item) []byte {
	last := items[len(items)-1]
	if !last.done {
		b = append(b, `,"finish_reason":null`...)
		if !c.p.chat {
			b = append(b, `,"stop_reason":null`...)
		}
		return b
	}
	b = append(b, `,"finish_reason":`...)
	b = appendString(b, last.reason)
	b = append(b, `,"stop_reason":`...)
	for _, it := range items {
		if it.stop != "" {
			return appendString(b, it.stop)
		}
	}
	return append(b, "null"...)
}

func (c *call) appendItemIDs(b []byte, items []item) []byte {
	if !c.p.returnIDs {
		return append(b, "null"...)
	}
	ids := make([]int32, 0, len(items))
	for _, it := range items {
		if it.token {
			ids = append(ids, it.id)
		}
	}
	return joinIDs(b, ids)
}

func appendIDs(b []byte, show bool, ids []int32) []byte {
	if !show {
		return append(b, "null"...)
	}
	return joinIDs(b, ids)
}

// appendLast is the event with the usage and no choice.
func (c *call) appendLast(b []byte) []byte {
	if c.srv.sgl() {
		return c.sglLast(b)
	}
	b = append(b, c.eventHead()...)
	b = append(b, `],"usage":`...)
	b = c.appendUsage(b, usageLast)
	b = append(b, `,"system_fingerprint":`...)
	b = appendString(b, c.srv.print)
	return append(b, "}\n\n"...)
}

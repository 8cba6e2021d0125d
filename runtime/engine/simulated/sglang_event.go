package simulated

import "github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"

// sglEvent renders one event of SGLang's stream. The end of a chat answer has an event of its
// own, without text.
func (c *call) sglEvent(b, head []byte, items []item) []byte {
	l := items[0].lane
	first := !l.opened
	l.opened = true
	text, reason := "", items[len(items)-1].reason
	if first && c.p.echo && !c.p.chat {
		text = token.Text(l.seq.Prompt)
	}
	for _, it := range items {
		text += it.text
		if it.token {
			l.count++
		}
	}
	if !c.p.chat {
		b = c.sglChoice(append(b, head...), l, items, text)
		if c.p.returnIDs {
			b = append(b, `,"token_ids":`...)
			b = c.appendItemIDs(b, items)
			if first {
				b = append(b, `,"prompt_token_ids":`...)
				b = joinIDs(b, l.seq.Prompt)
			}
		}
		return c.sglClose(append(b, "}]"...))
	}
	if first {
		b = c.sglDelta(append(b, head...), l, `{"role":"assistant","content":""}`, nil, "")
	}
	if text != "" || reason == "" {
		delta := append(appendString([]byte(`{"role":null,"content":`), text), '}')
		b = c.sglDelta(append(b, head...), l, string(delta), items, "")
	}
	if reason != "" {
		b = c.sglDelta(append(b, head...), l, `{"role":null,"content":null}`, items[len(items)-1:], reason)
	}
	return b
}

// sglChoice is a choice of a completion up to its optional members.
func (c *call) sglChoice(b []byte, l *lane, items []item, text string) []byte {
	b = append(b, `{"index":`...)
	b = appendInt(b, int64(l.index))
	b = append(b, `,"text":`...)
	b = appendString(b, text)
	b = append(b, `,"logprobs":`...)
	b = c.appendLogprobs(b, l, items)
	return sglFinish(b, items, items[len(items)-1].reason)
}

func (c *call) sglDelta(b []byte, l *lane, delta string, items []item, reason string) []byte {
	b = append(b, `{"index":`...)
	b = appendInt(b, int64(l.index))
	b = append(b, `,"delta":`...)
	b = append(b, delta...)
	b = append(b, `,"logprobs":`...)
	if reason == "" && items != nil {
		b = c.appendLogprobs(b, l, items)
	} else {
		b = append(b, "null"...)
	}
	return c.sglClose(append(sglFinish(b, items, reason), "}]"...))
}

func (c *call) sglClose(b []byte) []byte {
	b = append(b, `,"usage":`...)
	if c.p.continuous {
		b = c.sglUsage(b, false)
	} else {
		b = append(b, "null"...)
	}
	return append(b, "}\n\n"...)
}

func sglFinish(b []byte, items []item, reason string) []byte {
	b = append(b, `,"finish_reason":`...)
	if reason == "" {
		return append(b, `null,"matched_stop":null`...)
	}
	b = appendString(b, reason)
	b = append(b, `,"matched_stop":`...)
	for _, it := range items {
		if it.stop != "" {
			return appendString(b, it.stop)
		}
	}
	return append(b, "null"...)
}

func (c *call) sglUsage(b []byte, whole bool) []byte {
	in, out := c.promptTokens(), c.answerTokens()
	b = append(b, `{"prompt_tokens":`...)
	b = appendInt(b, int64(in))
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, int64(in+out))
	b = append(b, `,"completion_tokens":`...)
	b = appendInt(b, int64(out))
	if whole {
		b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
		b = appendInt(b, int64(c.cachedTokens()))
		b = append(b, '}')
	} else {
		b = append(b, `,"prompt_tokens_details":null`...)
	}
	return append(b, `,"reasoning_tokens":0}`...)
}

// sglLast is the event with the usage and no choice.
func (c *call) sglLast(b []byte) []byte {
	b = append(append(b, c.eventHead()...), `],"usage":`...)
	return append(c.sglUsage(b, true), "}\n\n"...)
}

// sglAnswer is a whole answer in one piece.
func (c *call) sglAnswer(b []byte, answers []answer) []byte {
	b = append(b, c.head("chat.completion")[len("data: "):]...)
	for i, a := range answers {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.sglWhole(b, c.lanes[i], a)
	}
	b = append(b, `],"usage":`...)
	b = c.sglUsage(b, true)
	return append(b, `,"metadata":{"weight_version":"default"}}`...)
}

func (c *call) sglWhole(b []byte, l *lane, a answer) []byte {
	text := ""
	if c.p.echo && !c.p.chat {
		text = token.Text(l.seq.Prompt)
	}
	for _, it := range a.items {
		text += it.text
	}
	items := append(a.items, a.end)
	if c.p.chat {
		b = append(b, `{"index":`...)
		b = appendInt(b, int64(l.index))
		b = append(b, `,"message":{"role":"assistant","content":`...)
		b = appendString(b, text)
		b = append(b, `,"reasoning_content":null,"tool_calls":null},"logprobs":`...)
		b = c.appendLogprobs(b, l, a.items)
		return append(sglFinish(b, items, a.end.reason), '}')
	}
	b = c.sglChoice(b, l, items, text)
	if c.p.returnIDs {
		b = append(b, `,"token_ids":`...)
		b = c.appendItemIDs(b, a.items)
		b = append(b, `,"prompt_token_ids":`...)
		b = joinIDs(b, l.seq.Prompt)
	}
	return append(b, '}')
}

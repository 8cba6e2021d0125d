package simulated

// promptTokens counts each prompt once, whatever the number of choices.
func (c *call) promptTokens() int {
	n := 0
	for _, ids := range c.p.prompts {
		n += len(ids)
	}
	return n
}

func (c *call) answerTokens() int {
	n := 0
	for _, l := range c.lanes {
		n += l.count
	}
	return n
}

// cachedTokens is known once the lanes ended. With a handoff the producer's figure counts.
func (c *call) cachedTokens() int {
	if c.p.transfer.take {
		return c.p.transfer.cached
	}
	if c.p.meet != nil && !c.p.prefills {
		return c.cached
	}
	return c.lanes[0].seq.Cached()
}

// Forms of the usage object: on every event, on a stream's last, in a buffered answer.
const (
	usagePlain = iota
	usageLast
	usageWhole
)

func (c *call) appendUsage(b []byte, form int) []byte {
	in, out := c.promptTokens(), c.answerTokens()
	b = append(b, `{"prompt_tokens":`...)
	b = appendInt(b, int64(in))
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, int64(in+out))
	b = append(b, `,"completion_tokens":`...)
	b = appendInt(b, int64(out))
	if form != usagePlain {
		b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
		b = appendInt(b, int64(c.cachedTokens()))
		switch {
		case c.p.chat:
			b = append(b, `,"created_cache_tokens":0`...)
		case form == usageWhole:
			b = append(b, `,"created_cache_tokens":null`...)
		}
		if form == usageWhole {
			b = append(b, `,"multimodal_tokens":null`...)
		}
		b = append(b, '}')
	}
	if form == usageWhole || (c.p.chat && form == usagePlain) {
		b = append(b, `,"completion_tokens_details":null`...)
	}
	return append(b, '}')
}

package router

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// promptField is the member that holds the prompt.
func (c *call) promptField() string {
	if c.chat {
		return "messages"
	}
	return "prompt"
}

func (c *call) prompt() *failure {
	v, ok := c.get("prompt")
	if !ok {
		return nil
	}
	switch v[0] {
	case '"':
		if !c.chat {
			c.runes = splice.Runes(v)
		}
		return nil
	case '[':
		if !c.chat {
			c.listed(v)
		}
		return nil
	}
	return invalid("prompt", "prompt must be a string or an array")
}

// only takes the one prompt of a list in the list's place, which asks for the same: a list is
// not split. It is false for what is no prompt, whose refusal is the engine's.
func (c *call) only(p json.RawMessage) bool {
	if n, ints, ok := splice.Count(p); ok && n > 0 && n == ints {
		c.tokens, c.longest = n, n
	} else if p[0] == '"' {
		c.runes = splice.Runes(p)
	} else {
		return false
	}
	c.object = c.object.With(splice.Set{Key: "prompt", Value: p})
	return true
}

// listed sizes a prompt that is an array: token ids, or several prompts of either form.
func (c *call) listed(v json.RawMessage) {
	n, ints, _ := splice.Count(v)
	if n == ints {
		c.tokens, c.longest = n, n
		return
	}
	prompts, _ := splice.Elements(v, n)
	if len(prompts) == 1 && c.only(prompts[0]) {
		return
	}
	c.several = true
	c.prompts = max(1, len(prompts))
	c.uncounted = true
	for _, p := range prompts {
		if p[0] == '"' {
			n := splice.Runes(p)
			c.runes += n
			c.widest = max(c.widest, n)
			continue
		}
		ids, ints, ok := splice.Count(p)
		if !ok || ids != ints {
			c.tokens, c.longest = 0, 0
			return
		}
		c.tokens += ids
		c.longest = max(c.longest, ids)
	}
	c.uncounted = c.tokens == 0
}

// maxWidth is the most sequences of one prompt, as the public API has it.
const maxWidth = 128

// maxMessages of one conversation.
const maxMessages = 1 << 20

func (c *call) messages() *failure {
	v, ok := c.get("messages")
	if !ok {
		return nil
	}
	items, ok := splice.Elements(v, maxMessages)
	if !ok {
		return invalid("messages", "messages must be an array")
	}
	for _, m := range items {
		if m[0] != '{' {
			return invalid("messages", "every item in messages must be an object")
		}
		if c.chat {
			c.content(m)
		}
	}
	return nil
}

// content counts the text of a message: a string, or the text of its parts.
func (c *call) content(message []byte) {
	v, ok := splice.View(message).Get("content")
	if !ok {
		return
	}
	if v[0] == '"' {
		c.runes += splice.Runes(v)
		return
	}
	parts, _ := splice.Elements(v, maxMessages)
	for _, p := range parts {
		if t, ok := splice.View(p).Get("text"); ok && t[0] == '"' {
			c.runes += splice.Runes(t)
		} else {
			c.foreign = true
		}
	}
}

// estimate is the prompt's length in tokens when nobody counted it.
func (c *call) estimate(charsPerToken float64) int {
	if c.tokens > 0 {
		return c.tokens
	}
	return max(1, int(float64(c.runes)/charsPerToken))
}

// sequences is how many answers the engine makes.
func (c *call) sequences() int { return c.choices * c.prompts }

// answers is how many choices the client gets: of best_of only the n best are.
func (c *call) answers() int { return c.wide * c.prompts }

// largest is the length of the longest prompt, as estimate has it.
func (c *call) largest(charsPerToken float64) int {
	if !c.several {
		return c.estimate(charsPerToken)
	}
	return max(c.longest, int(float64(c.widest)/charsPerToken))
}

// countBody is the body of a tokenize call, or nil when the count is already known.
func (c *call) countBody(modelName string) []byte {
	if c.tokens > 0 || c.uncounted {
		return nil
	}
	keys := []string{"prompt", "add_special_tokens"}
	if c.chat {
		keys = []string{"messages", "tools", "chat_template", "chat_template_kwargs", "continue_final_message", "add_generation_prompt", "add_special_tokens"}
	}
	var empty splice.Object
	set := []splice.Set{{Key: "model", Value: quote(modelName)}}
	for _, k := range keys {
		if v, ok := c.get(k); ok {
			set = append(set, splice.Set{Key: k, Value: v})
		}
	}
	return empty.Edit(nil, set...)
}

package router

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// fault is the error that an answer with status 200 is or ends with; nil for none.
func (c *chunk) fault() error {
	if len(c.err) > 0 {
		return fmt.Errorf("error in an answer with status 200: %s", c.err)
	}
	if failed(c.finish) {
		return fmt.Errorf("finish reason %q", c.finish)
	}
	return nil
}

// entire judges an answer that came whole, as events are judged one by one: it has each choice that
// was asked for, once and to its end.
func (c *chunk) entire(chat bool, most int) error {
	if err := c.fault(); err != nil {
		return err
	}
	output := outText
	if chat {
		output = outMessage
	}
	if err := c.check(output, most); err != nil {
		return err
	}
	if len(c.choices) != most {
		return fmt.Errorf("%d choices of the %d that were asked for", len(c.choices), most)
	}
	for _, ch := range c.choices {
		index, _ := indexOf(ch, most)
		if !ends(ch) {
			return fmt.Errorf("choice %d has no finish reason", index)
		}
		v, _ := ch.Get(output)
		if !utters(v, chat) {
			return fmt.Errorf("read %s of choice %d: it is none", output, index)
		}
		to := newChoice()
		if chat {
			if err := to.delta(v); err != nil {
				return fmt.Errorf("read %s of choice %d: %w", output, index, err)
			}
		}
		if err := to.merge(ch, false); err != nil {
			return err
		}
	}
	return nil
}

// utters reports whether the output of a whole choice has its form: a text, or a message with any of
// the members that may be all of it.
func utters(v []byte, chat bool) bool {
	switch {
	case len(v) == 0:
		return false
	case !chat:
		return v[0] == '"'
	case v[0] != '{':
		return false
	}
	for k := range splice.View(v).All() {
		switch k {
		case "content", "tool_calls", "function_call", "refusal", "reasoning", "reasoning_content":
			return true
		}
	}
	return false
}

package router

import (
	"errors"
	"fmt"
)

// entire judges an answer that came whole, as events are judged one by one: it has choices that
// were asked for, each once and to its end.
func (c *chunk) entire(chat bool, most int) error {
	if len(c.err) > 0 {
		return fmt.Errorf("error in an answer with status 200: %s", c.err)
	}
	if failed(c.finish) {
		return fmt.Errorf("finish reason %q", c.finish)
	}
	if err := c.check(chat, most); err != nil {
		return err
	}
	if len(c.choices) == 0 {
		return errors.New("it holds no choice")
	}
	output, start := "text", byte('"')
	if chat {
		output, start = "message", '{'
	}
	seen := map[int]bool{}
	for i, ch := range c.choices {
		index, _ := indexOf(ch, most)
		if _, told := ch.Get("index"); !told {
			index = i
		}
		if seen[index] {
			return fmt.Errorf("choice %d comes twice", index)
		}
		seen[index] = true
		if !ends(ch) {
			return fmt.Errorf("choice %d has no finish reason", index)
		}
		if v, ok := ch.Get(output); !ok || v[0] != start {
			return fmt.Errorf("read %s: it is none", output)
		}
	}
	return nil
}

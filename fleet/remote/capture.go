package remote

import (
	"bytes"
	"strings"
	"sync"

	"github.com/narwhal-fleet/narwhal/fleet"
)

const secretMask = "********"

// capture keeps the first bytes of a stream and forgets the rest, so that a command never
// blocks on its output. Secrets are masked in what it gives back.
type capture struct {
	mu      sync.Mutex
	max     int
	room    int // max and the length of the longest secret, so that none is cut at the edge
	secrets []string
	buf     []byte
	cut     bool
}

func newCapture(limit int, secrets map[string]fleet.Secret) *capture {
	c := &capture{max: limit, room: limit}
	for _, s := range secrets {
		// One or two characters are found everywhere: masking them tells more than it hides.
		if v := s.Reveal(); len(v) > 2 {
			c.secrets = append(c.secrets, v)
			c.room = max(c.room, limit+len(v))
		}
	}
	return c
}

// Write never fails.
func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := min(len(b), c.room-len(c.buf))
	c.buf = append(c.buf, b[:keep]...)
	c.cut = c.cut || keep < len(b)
	return len(b), nil
}

// bytes returns what is kept, and whether there was more.
func (c *capture) bytes() ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := c.cut || len(c.buf) > c.max
	out := bytes.Clone(c.buf)
	for _, s := range c.secrets {
		out = bytes.ReplaceAll(out, []byte(s), []byte(secretMask))
	}
	if c.cut {
		// The end may hold the beginning of a secret.
		out = out[:max(0, len(out)-(c.room-c.max))]
	}
	return out[:min(len(out), c.max)], cut
}

// lastLine is the last non-empty line of text, printable and bounded.
func lastLine(text []byte) string {
	text = bytes.TrimRight(text, " \t\r\n")
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	const most = 200
	s := strings.TrimSpace(printable(string(text)))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

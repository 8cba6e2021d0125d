package simulated

import (
	"bytes"
	"iter"
	"net/http"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// writer sends events. It flushes once for what came together, one write an event.
type writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   []byte
	shape shape
}

func (o *writer) send() error {
	b := o.buf
	o.buf = b[:0]
	for piece := range o.shape.pieces(b) {
		if _, err := o.w.Write(piece); err != nil {
			return err
		}
		if err := o.rc.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// pieces are the writes that bytes leave in: all at once, or each event cut by the shape.
func (s shape) pieces(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			event := len(b)
			if i := bytes.Index(b, []byte("\n\n")); i >= 0 && s.cuts() {
				event = i + 2
			}
			for at := 0; at < event; {
				n := s.piece(b[at:event], at == 0)
				if !yield(b[at : at+n]) {
					return
				}
				at += n
			}
			b = b[event:]
		}
	}
}

func (s shape) cuts() bool { return s.split || s.splitRune || s.trickle }

// piece is the length of the next write of an event.
func (s shape) piece(b []byte, first bool) int {
	switch {
	case s.trickle:
		return 1
	case s.splitRune:
		for i := 1; i < len(b); i++ {
			if b[i-1] >= utf8.RuneSelf && !utf8.RuneStart(b[i]) {
				return i
			}
		}
	case s.split && first:
		return (len(b) + 1) / 2
	}
	return len(b)
}

// stream answers with events. On vLLM the headers leave at once: validation passed, nothing more.
func (c *call) stream(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK) // buffered until the first flush
	sh := c.srv.shape()
	out := &writer{w: w, rc: http.NewResponseController(w), shape: sh}
	if !c.srv.sgl() { // there the headers leave with the first event
		if err := out.rc.Flush(); err != nil {
			return err
		}
	}
	head := c.eventHead()
	var carry []item
	for open := len(c.lanes); open > 0; {
		items, err := c.take()
		if err != nil {
			return err
		}
		carry = append(carry, items...)
		for len(carry) > 0 {
			n := group(carry, sh.join)
			if n == 0 {
				break
			}
			if ended, err := c.fail(out, carry[:n]); ended {
				return err
			}
			if carry[n-1].done {
				open--
			}
			out.buf = c.appendEvent(out.buf, head, carry[:n])
			carry = carry[n:]
		}
		if len(out.buf) > 0 {
			if err := out.send(); err != nil {
				return err
			}
		}
	}
	if c.p.includeUsage {
		out.buf = c.appendLast(out.buf)
	}
	out.buf = append(out.buf, "data: [DONE]\n\n"...)
	return out.send()
}

// group returns how many leading items make one event: up to join tokens of one lane and the
// end that belongs to the last of them. 0 means that more must come.
func group(items []item, join int) int {
	n := 0
	for n < len(items) && n < join && items[n].token && items[n].lane == items[0].lane {
		n++
	}
	if n < len(items) && items[n].done && items[n].lane == items[0].lane {
		return n + 1
	}
	if n < join && n == len(items) {
		return 0
	}
	return max(n, 1)
}

// fail ends a stream that broke: an error of the engine, or an injected one once enough tokens
// left.
func (c *call) fail(out *writer, items []item) (ended bool, err error) {
	last := items[len(items)-1]
	var bad *refusal
	if last.err != nil {
		bad = c.srv.refusalOf(last.err)
	} else if c.fault.due(c.answerTokens()) {
		if len(out.buf) > 0 {
			if err := out.send(); err != nil {
				return true, err
			}
		}
		switch c.fault.kind {
		case faultStall:
			<-c.ctx.Done()
			return true, c.ctx.Err()
		case faultReset:
			return true, http.ErrAbortHandler
		case faultEOF:
			return true, nil
		}
		bad = c.srv.refusalOf(core.ErrLoad)
	}
	if bad == nil {
		return false, nil
	}
	out.buf = append(out.buf, "data: "...)
	out.buf = append(out.buf, bad.errorBody(c.srv.sgl(), true)...)
	out.buf = append(out.buf, "\n\ndata: [DONE]\n\n"...)
	return true, out.send()
}

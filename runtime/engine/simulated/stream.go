package simulated

import "net/http"

// writer sends events. It flushes once for what came together, one write an event.
type writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   []byte
	split bool // cut each write in two, anywhere
}

func (o *writer) send() error {
	b := o.buf
	o.buf = b[:0]
	if o.split && len(b) > 1 {
		cut := len(b) / 2
		if _, err := o.w.Write(b[:cut]); err != nil {
			return err
		}
		if err := o.rc.Flush(); err != nil {
			return err
		}
		b = b[cut:]
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.rc.Flush()
}

// stream answers with events. The headers leave at once: validation passed, nothing more.
func (c *call) stream(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	split, join := c.srv.shape()
	out := &writer{w: w, rc: http.NewResponseController(w), split: split}
	if err := out.rc.Flush(); err != nil {
		return err
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
			n := group(carry, join)
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
		bad = refusalOf(last.err)
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
		bad = internal("Internal server error")
	}
	if bad == nil {
		return false, nil
	}
	out.buf = append(out.buf, "data: "...)
	out.buf = append(out.buf, bad.body(true)...)
	out.buf = append(out.buf, "\n\ndata: [DONE]\n\n"...)
	return true, out.send()
}

package router

import (
	"context"
	"math"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// end answers a failure if the client can still be told, fills the row, counts it once and
// writes it.
func (q *request) end(f *failure) {
	row := &q.row
	row.Duration = q.r.own.now() - row.Arrived
	q.account()
	if f == nil {
		row.Terminal = journal.Completed
		slo := q.r.set.params
		row.SLOMet = row.TTFT != nil && *row.TTFT <= slo.TTFT && (row.TPOT == nil || *row.TPOT <= slo.TPOT)
	} else {
		q.fail(f)
	}
	o := q.r.own
	o.do(func() {
		if q.seated {
			o.leaveSeat()
		}
		if q.seat != nil {
			o.n.retained--
			o.n.drain.ended(o.now())
			o.tenants.Done(o.now(), q.seat, q.took())
		}
		if q.answered && q.claim != nil {
			o.absolve(q.claim.d, classConnection, classInference, classStream, classHandoff)
		}
		if q.answered && q.claim != nil {
			q.kept(o, q.claim)
			o.eased(q.claim)
		}
		if q.handoffDelay > 0 && q.claim != nil {
			o.learnHandoff(q.handoffDelay, q.claim)
		}
		q.giveBack(o)
		q.release(o)
		o.n.finish(row)
		if f == nil {
			if row.OutputLen != nil {
				o.ctl, _ = control.Step(o.ctl, control.Outcome{Input: row.InputLen, Wanted: q.wanted, Output: *row.OutputLen})
			}
			o.ctl, _ = control.Step(o.ctl, control.Miss{At: o.now(), Lack: q.lacked()})
		}
	})
	q.finished()
}

// lacked is what the controller is told of a whole answer. One that took another attempt, or that no
// prefill is known of, says nothing of how many engines there are.
func (q *request) lacked() model.Role {
	row := &q.row
	if row.TTFT == nil || row.Attempts > 1 {
		return ""
	}
	interval := 0.0
	if row.TPOT != nil {
		interval = *row.TPOT
	}
	return control.Late(q.r.set.params, *row.TTFT, *row.TTFT, interval)
}

// kept notes what the decode engine has in its cache after a whole answer, and what it had if it
// did both phases and tells. It runs in the owner's goroutine.
func (q *request) kept(o *owner, l *claim) {
	if q.cont.goesOn() {
		return
	}
	o.holds(l.d, l)
	if l.p == l.d && q.usage != nil && q.usage.Cached >= 0 {
		if q.usage.Cached > 0 {
			q.row.CachedTokens[l.p.id] = q.usage.Cached
		}
		o.shown(l, q.usage.Cached)
	}
}

func (q *request) fail(f *failure) {
	// The client's own leave outranks what its leaving broke.
	if cause := context.Cause(q.ctx); cause != nil && f.terminal != journal.Cancelled {
		if e := ended(cause); e.terminal == journal.Cancelled && f.terminal != journal.Invalid || f.terminal == journal.Failed {
			f = e
		}
	}
	row := &q.row
	row.Terminal = f.terminal
	if f.reason != "" {
		row.Reason = ptr(f.reason)
	}
	detail := f.detail
	if detail == "" {
		detail = f.message
	}
	row.Error = ptr(engine.Printable(detail, 500))
	switch f.terminal {
	case journal.Cancelled:
		row.Cancelled, row.CancelledPhase, row.Error = true, q.phase, nil
		told(f, false)
		return
	case journal.Refused:
		row.Refused, row.RefusedCause = true, f.reason.Cause()
	case journal.Rejected:
		row.Rejected, row.ReadinessReason = true, f.ready
	case journal.Expired:
		row.Expired = true
	}
	if q.started || q.out.committed {
		row.ErrorType, row.ErrorCode = ptr(phaseDecode), ptr(map[bool]string{true: journal.Expired, false: journal.Failed}[f.terminal == journal.Expired])
		if !q.buffered() {
			told(f, true)
			q.out.lock()
			// The request's own deadline may be what ended it: the last event gets a moment more.
			_ = q.out.SetWriteDeadline(time.Now().Add(lastEvent))
			_ = q.out.send(q.w, f.event())
			q.out.unlock()
		}
		return
	}
	if f.upstream != 0 {
		f.message = q.r.set.hide(f.message)
	}
	row.Status, row.ErrorType, row.ErrorCode = ptr(f.status), ptr(f.typ), f.code
	told(f, false)
	q.answer(f)
}

// took is the tokens that the request used, for its tenant's bucket; 0 when it never ran.
func (q *request) took() int {
	switch {
	case q.usage != nil:
		return q.usage.Prompt + q.usage.Completion
	case q.row.Attempts > 0:
		return q.input
	}
	return 0
}

// unknownContext stands in for the context of engines that do not tell it, in tokens.
const unknownContext = 1 << 24

// plausible bounds what an engine says that it used by what was asked for: accounts and limits
// follow it. What the client reads is the engine's own.
func (q *request) plausible(u *usage) *usage {
	if u == nil {
		return nil
	}
	longest := unknownContext
	if q.context > 0 {
		longest = q.context
	}
	most := longest
	if q.call.most > 0 {
		most = min(most, q.call.most)
	}
	u.Completion = min(u.Completion, most*q.call.sequences())
	u.Prompt = min(u.Prompt, longest*q.call.prompts, q.call.mostPrompt())
	return u
}

// beside is the most that a template adds to a prompt, in tokens, and special tokens to a text.
const (
	besideChat = 4096
	besideText = 8
)

// mostPrompt is the most tokens that the prompts can have: one for each byte of the body. What is
// not text has no such bound, nor what a template of the client's writes.
func (c *call) mostPrompt() int {
	if c.foreign || c.templated {
		return math.MaxInt32
	}
	n := c.size + besideText*c.prompts
	if c.chat {
		n += besideChat
	}
	return n
}

// lastEvent is how long a client may take for the event that ends its stream.
const lastEvent = time.Second

func (q *request) buffered() bool { return q.call != nil && !q.call.stream }

func (q *request) answer(f *failure) {
	if f.retryAfter > 0 {
		q.w.Header().Set("Retry-After", seconds(f.retryAfter))
	}
	if f.typ == "internal" {
		q.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		q.w.WriteHeader(f.status)
		_, _ = q.w.Write([]byte(f.message))
		return
	}
	writeBody(q.w, f.status, f.body())
}

package router

import (
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// arrive counts the offer, and the request if its tenant may have it here. The end counts it
// out.
func (q *request) arrive(unknown *failure) (f *failure) {
	o := q.r.own
	o.do(func() {
		o.n.offered++
		if o.n.retained >= q.r.set.most() {
			if unknown == nil {
				o.wanted(q)
			}
			f = overloaded(model.ReasonInflight, journal.Rejected, "router in-flight limit reached", o.n.drain.after(1))
			return
		}
		if f = unknown; f == nil {
			f = q.seatOf(o)
		}
		if f != nil {
			return
		}
		o.n.retained++
		o.n.retainedHigh = max(o.n.retainedHigh, o.n.retained)
	})
	return f
}

// ready refuses while the router may not admit.
func (q *request) ready() *failure {
	p := q.r.own.view.Load()
	reason := p.refuses()
	if reason == "" {
		return nil
	}
	f := coded(503, "standby", "Router is not ready")
	if p.blocked == "" && !p.stopping && p.valid && p.live == 0 {
		f = coded(503, "backend_unavailable", "No engines are available")
	}
	f.terminal, f.reason, f.ready, f.retryAfter = journal.Rejected, model.ReasonNotReady, reason, 1
	return f
}

// size counts the prompt, exactly where an engine can.
func (q *request) size() *failure {
	set := q.r.set
	defer q.r.metrics.sizing.since(time.Now())
	q.input = q.call.estimate(set.Fleet.Engine.CharsPerToken)
	q.longest = q.call.longest
	if set.Fleet.Engine.Tokenize {
		if body := q.call.countBody(set.Fleet.Model); body != nil {
			n, f := q.r.count(q.ctx, body)
			if f != nil {
				return f
			}
			if n > 0 && n <= q.call.mostPrompt() {
				q.input, q.longest = n, n
			}
		}
	}
	q.row.InputLen, q.row.InputSized = q.input, true
	return nil
}

// enter tells the controller of a sized arrival, once. A prompt that was counted and that no
// engine can ever hold is the client's fault. held are the tokens of the prompt that each engine
// is believed to hold. It runs in the owner's goroutine.
func (q *request) enter(o *owner, held []int) *failure {
	if !q.sized {
		q.sized = true
		for _, k := range q.call.stripped {
			if !strings.HasPrefix(k, "bootstrap_") {
				o.n.stripped[k]++
			} else {
				o.n.stripped["bootstrap"]++
			}
		}
		o.n.inputSum += float64(q.input)
		o.n.inputCount++
		q.wanted = q.reachable(o)
		o.ctl, _ = control.Step(o.ctl, control.Arrival{At: q.row.Arrived, Input: q.input, Wanted: q.wanted, Cached: o.most(held)})
		q.expect = o.ctl.Expect(q.input, q.wanted) * min(q.call.sequences(), 1<<20)
	}
	q.context = o.context()
	if f := q.beyond(q.context, q.longest, ""); f != nil {
		return f
	}
	return q.chargeTokens(o)
}

// reachable is the output cap that the client set, at most what an engine has room for after the
// prompt. The engine ends the answer there, or refuses it: the cap is sent as it came.
func (q *request) reachable(o *owner) int {
	most := o.context()
	if most == 0 {
		most = o.room()
	}
	if q.call.wanted == 0 || most == 0 {
		return q.call.wanted
	}
	longest := q.longest
	if longest == 0 {
		longest = q.call.largest(q.r.set.Fleet.Engine.CharsPerToken)
	}
	return min(q.call.wanted, max(1, most-longest))
}

// beyond refuses a prompt that no engine can ever hold; most is 0 when that is not known.
func (q *request) beyond(most, tokens int, about string) *failure {
	if _, cut := q.call.get("truncate_prompt_tokens"); most == 0 || tokens < most || cut {
		return nil
	}
	return invalid(q.call.promptField(), "the prompt has %s%d tokens; this fleet's maximum context length is %d tokens, and the answer needs at least one of them", about, tokens, most)
}

// neverFits judges again a prompt that nobody counted and that was refused: when its estimate, or
// its size beside every engine's KV cache, says that it never fits, waiting would not help.
// It runs in the owner's goroutine.
func (q *request) neverFits(o *owner, why model.Reason) *failure {
	if why == model.ReasonNoEngine {
		return nil
	}
	about, tokens := "", q.longest
	if tokens == 0 || q.call.several {
		if n := q.call.largest(q.r.set.Fleet.Engine.CharsPerToken); n > tokens {
			about, tokens = "about ", n
		}
	}
	if f := q.beyond(o.context(), tokens, about); f != nil {
		return f
	}
	return q.beyond(o.capacity(), tokens, about)
}

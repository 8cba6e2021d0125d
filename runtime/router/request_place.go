package router

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// place prices and chooses both engines, and reserves them.
func (q *request) place(attempt int, unsplit bool) (*claim, *failure) {
	if f := q.ready(); f != nil {
		return nil, f
	}
	o := q.r.own
	shared := q.shared()
	var d replay.Decision
	var f, never *failure
	if !o.do(func() {
		held := o.believed(shared, q.input)
		if f = q.enter(o, held); f != nil {
			return
		}
		r := model.Request{ID: q.row.RID, Arrived: q.row.Arrived, Input: q.input, Expected: q.expect, Sequences: several(q.call.sequences()), Unsplit: unsplit, AvoidPrefill: slices.Concat(q.badP, q.suspects), AvoidDecode: q.badD, Cached: held}
		d, q.claim = o.place(r, attempt == 1, o.now())
		if q.claim == nil && len(q.suspects) > 0 {
			r.AvoidPrefill = q.badP
			d, q.claim = o.place(r, false, o.now())
		}
		if o.journal != nil {
			d.Decision = d.Keep()
		}
		if q.claim == nil {
			if never = q.neverFits(o, d.Refused); never == nil && attempt == 1 {
				o.ctl, _ = control.Step(o.ctl, control.Miss{At: o.now(), Lack: control.Lacked(d.Refused)})
			}
		}
		if q.claim != nil {
			q.claim.cut = q.cut
			q.claim.rests(shared)
			q.credit = grant{}
			if attempt == 1 {
				o.budget.sent(o.now())
			}
			if d.Split() {
				o.n.prefillAttempts++
			}
		}
	}) {
		return nil, ended(errShutdown)
	}
	if f != nil {
		return nil, f
	}
	if o.journal != nil {
		if len(q.row.Decision) > 0 {
			q.row.Earlier = append(q.row.Earlier, q.row.Decision)
		}
		q.row.Decision, _ = json.Marshal(d)
	}
	q.priced(attempt, d.Decision)
	q.row.CachePlacement = nil
	if l := q.claim; l != nil {
		q.row.CachePlacement = l.rested
		q.row.Prefill, q.row.Decode, q.row.Crossed = ptr(d.Prefill), ptr(d.Decode), d.Split()
		return l, nil
	}
	if never != nil {
		return nil, never
	}
	return nil, refusal(d.Decision, attempt, q.r.set.params.Budget())
}

// several is how a request tells of more than one sequence.
func several(n int) int {
	if n < 2 {
		return 0
	}
	return min(n, 1<<20)
}

// refusal words a decision that placed nobody.
func refusal(d sched.Decision, attempt int, budget float64) *failure {
	switch d.Refused {
	case model.ReasonNoEngine:
		f := coded(503, "no_schedulable_engines", "Engine capacity is unavailable")
		if attempt > 1 {
			f = coded(503, "backend_unavailable", "Engine capacity is unavailable")
		}
		f.terminal, f.reason, f.retryAfter = journal.Failed, model.ReasonNoEngine, 1
		return f
	case model.ReasonPrompt:
		return overloaded(d.Refused, journal.Refused, fmt.Sprintf("the prompt's own prefill prices the first token at %.2fs against a budget of %.2fs; waiting does not help", d.Price, budget), 0)
	case model.ReasonQueue:
		return overloaded(d.Refused, journal.Refused, fmt.Sprintf("the cheapest placement prices the first token at %.2fs against a budget of %.2fs", d.Price, budget), d.RetryAfter)
	}
	return overloaded(d.Refused, journal.Refused, "no decode engine can take the request within its promise: "+string(d.Refused), max(1, d.RetryAfter))
}

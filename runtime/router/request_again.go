package router

import (
	"context"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// pause waits before a retry; nothing when it need not.
func (q *request) pause(wait time.Duration) *failure {
	if wait <= 0 || pause.For(q.ctx, wait) {
		return nil
	}
	return ended(context.Cause(q.ctx))
}

func (q *request) mayRetry(f *failure, attempt int) (time.Duration, string) {
	switch {
	case q.started:
		return 0, outputStarted
	case q.ctx.Err() != nil || f.terminal != journal.Failed && !f.transient:
		if f.phase == "" {
			return 0, notDispatched
		}
		return 0, nonTransient
	case f.phase == "" || f.phase == phaseAdmission:
		return 0, notDispatched
	case !f.transient:
		return 0, nonTransient
	case attempt >= q.r.set.attempts:
		return 0, attemptLimit
	}
	wait, why := time.Duration(0), noSharedBudget
	q.r.own.do(func() { wait, why = q.r.own.retry(q, f, attempt) })
	return wait, why
}

// exclude keeps the next attempt off the engines that the failure points at.
func (q *request) exclude(f *failure) {
	if f.gone {
		// The process is dead for either role, and nobody else is to blame.
		q.badP, q.badD = append(q.badP, f.engineID), append(q.badD, f.engineID)
		return
	}
	if f.phase == phasePrefill {
		q.badP = append(q.badP, f.engineID)
		return
	}
	// Who failed as a decoder is not asked to prefill instead.
	q.badP, q.badD = append(q.badP, f.engineID), append(q.badD, f.engineID)
	// Of a refused connection the producer is innocent; otherwise it may be the transfer.
	if f.class != classConnection && q.row.Prefill != nil {
		q.suspects = append(q.suspects, *q.row.Prefill)
	}
}

func (q *request) note(f *failure, attempt int, wait time.Duration, why string) {
	if f.terminal == journal.Cancelled || f.terminal == journal.Invalid && f.phase == "" {
		return
	}
	phase := f.phase
	if phase == "" {
		phase = q.phase
	}
	a := journal.Attempt{At: q.r.own.now(), Attempt: attempt, Phase: phase, Reason: f.reason, Prefill: q.row.Prefill, Decode: q.row.Decode,
		Type: f.typ, Message: engine.Printable(f.detail, 240), Transient: f.transient, Output: q.started, Retry: why == retryAllowed, RetryReason: why}
	if f.upstream > 0 {
		a.Status = ptr(f.upstream)
	}
	if a.Retry {
		a.Backoff = ptr(wait.Seconds())
	}
	q.row.Failures = append(q.row.Failures, a)
	q.r.own.do(func() { q.r.own.n.attemptFailures[[2]string{phase, string(f.reason)}]++ })
}

package router

import (
	"math/rand/v2"
	"time"
)

// cause is what a failed attempt counts as in the retry budget: its breaker class, or its
// reason where no engine is to blame.
func (f *failure) cause() string {
	if f.class != classNone {
		return f.class
	}
	return string(f.reason)
}

// retry decides whether the shared budget has another attempt for a failed one, and how long
// it waits. The first retry after the death or the ejection of an engine is free and waits for
// nothing: its requests fail together, no healthy engine is to blame, and nothing of the
// engine is left that could recover meanwhile. It runs in the owner's goroutine.
func (o *owner) retry(q *request, f *failure, attempt int) (time.Duration, string) {
	free := attempt == 1 && (f.gone || f.free || q.lost())
	wait := time.Duration(0)
	if !free {
		wait = o.set.backoff(attempt)
	}
	now := o.now()
	if now+wait.Seconds() >= q.row.Arrived+o.set.requestTimeout.Seconds() {
		return 0, noTime
	}
	if free {
		return wait, retryAllowed
	}
	g, ok := o.budget.take(f.cause(), now)
	if !ok {
		o.n.retryDenied++
		o.n.retryDenials[f.cause()]++
		return 0, noSharedBudget
	}
	o.n.creditsSpent++
	q.credit = g
	return wait, retryAllowed
}

// lost reports whether an engine of the attempt has been ejected since it was chosen.
func (q *request) lost() bool {
	return q.claim != nil && (q.claim.p.ejected != "" || q.claim.d.ejected != "")
}

// giveBack returns the credit of a retry that was never sent. It runs in the owner's goroutine.
func (q *request) giveBack(o *owner) {
	if q.credit.cause == "" {
		return
	}
	o.budget.giveBack(q.credit)
	o.n.creditsSpent--
	q.credit = grant{}
}

// backoff before a retry: uniform up to the capped exponential.
func (s *settings) backoff(attempt int) time.Duration {
	f := s.Fleet.Serving
	limit := min(f.RetryCapS, f.RetryBaseS*float64(int(1)<<(attempt-1)))
	return dur(rand.Float64() * limit)
}

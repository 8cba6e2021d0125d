package router

import (
	"context"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// waiter is one request that waits for a seat. handed is closed by the owner with the seat.
type waiter struct {
	handed chan struct{}
	has    bool
}

// queue is who waits for a seat, oldest first. It belongs to the owner. Where
// serving.queue_capacity is 0 nobody ever waits.
type queue struct {
	waiters   []*waiter
	highWater int
}

// most is how many requests the router holds at once, waiters included.
func (s *settings) most() int { return s.limit + s.Fleet.Serving.QueueCapacity }

// seatOrWait takes a free seat; nil means that the request has one already. A newcomer
// passes only when nobody waits.
func (o *owner) seatOrWait() *waiter {
	if o.n.inflight < o.set.limit && len(o.queue.waiters) == 0 {
		o.n.inflight++
		return nil
	}
	w := &waiter{handed: make(chan struct{})}
	o.queue.waiters = append(o.queue.waiters, w)
	o.queue.highWater = max(o.queue.highWater, len(o.queue.waiters))
	return w
}

// leaveSeat gives a seat to the oldest waiter, or frees it.
func (o *owner) leaveSeat() {
	if len(o.queue.waiters) == 0 {
		o.n.inflight--
		return
	}
	w := o.queue.waiters[0]
	o.queue.waiters = slices.Delete(o.queue.waiters, 0, 1)
	w.has = true
	close(w.handed)
}

// drop takes a waiter out; false when it has a seat by now.
func (o *owner) drop(w *waiter) bool {
	if w.has {
		return false
	}
	o.queue.waiters = slices.DeleteFunc(o.queue.waiters, func(x *waiter) bool { return x == w })
	return true
}

// patience is how many seconds a request may wait for a seat: the queue's bound, and where late
// requests are refused, no longer than the first-token budget lasts.
func (q *request) patience(now float64) float64 {
	limit := q.r.set.Fleet.Serving.QueueTimeoutS
	if p := q.r.set.params; !p.Open {
		limit = min(limit, p.Budget()-(now-q.row.Arrived))
	}
	return limit
}

// hopeless reports whether a newcomer would wait for a seat longer than it may.
func (o *owner) hopeless(limit, now float64) bool {
	if o.n.inflight < o.set.limit && len(o.queue.waiters) == 0 {
		return false
	}
	return limit <= 0 || o.n.drain.wait(len(o.queue.waiters)+1, now) > limit
}

// seatless refuses a request that no seat comes free for in time, and tells when one will.
func (o *owner) seatless() *failure {
	return overloaded(model.ReasonQueueTimeout, journal.Expired, "no seat comes free within the time that the request may wait", o.n.drain.after(len(o.queue.waiters)+1))
}

// takeSeat waits for a seat no longer than its patience and the request's own deadline. It is
// refused at once when that is known to be too short.
func (q *request) takeSeat() *failure {
	o := q.r.own
	var w *waiter
	var f *failure
	start := o.now()
	limit := q.patience(start)
	if !o.do(func() {
		if o.hopeless(limit, start) {
			f = o.seatless()
			return
		}
		w = o.seatOrWait()
	}) {
		return ended(errShutdown)
	}
	if f == nil {
		f = q.await(w, dur(limit))
	}
	waited := o.now() - start
	if w == nil {
		waited = 0
	}
	q.row.QueueWaits.Admission, q.row.QueueWait = ptr(waited), waited
	q.seated = f == nil
	return f
}

func (q *request) await(w *waiter, limit time.Duration) *failure {
	if w == nil {
		return nil
	}
	o := q.r.own
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-w.handed:
		return nil
	case <-late.C:
	case <-q.ctx.Done():
	}
	var f *failure
	if !o.do(func() {
		if o.drop(w) {
			f = o.seatless()
		}
	}) {
		return ended(errShutdown)
	}
	if cause := context.Cause(q.ctx); f != nil && cause != nil {
		return ended(cause)
	}
	return f // nil when the seat came in this very moment
}

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

// takeSeat waits for a seat no longer than the queue's bound and the request's own deadline.
func (q *request) takeSeat() *failure {
	o := q.r.own
	var w *waiter
	if !o.do(func() { w = o.seatOrWait() }) {
		return ended(errShutdown)
	}
	start := o.now()
	f := q.await(w)
	waited := o.now() - start
	if w == nil {
		waited = 0
	}
	q.row.QueueWaits.Admission, q.row.QueueWait = ptr(waited), waited
	q.seated = f == nil
	return f
}

func (q *request) await(w *waiter) *failure {
	if w == nil {
		return nil
	}
	o := q.r.own
	late := time.NewTimer(dur(q.r.set.Fleet.Serving.QueueTimeoutS))
	defer late.Stop()
	select {
	case <-w.handed:
		return nil
	case <-late.C:
	case <-q.ctx.Done():
	}
	dropped := false
	if !o.do(func() { dropped = o.drop(w) }) {
		return ended(errShutdown)
	}
	if !dropped {
		return nil // the seat came in this very moment
	}
	if cause := context.Cause(q.ctx); cause != nil {
		return ended(cause)
	}
	return &failure{status: 504, typ: "queue_expired", message: "queue deadline expired", terminal: journal.Expired, reason: model.ReasonQueueTimeout}
}

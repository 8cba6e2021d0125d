package router

import (
	"net/http"
	"sync"
	"time"
)

// awake sends comment frames to the client of a stream while its engines are silent, so that
// nothing between drops the connection. It is off unless configured.
type awake struct {
	q      *request
	period time.Duration
	timer  *time.Timer
}

var comment = []byte(": keep-alive\n\n")

// stayAwake begins; the result ends it, after which nothing more is written by it.
func (q *request) stayAwake() (end func()) {
	period := q.r.set.HTTP.KeepAlive
	if period <= 0 || !q.call.stream {
		return func() {}
	}
	a := &awake{q: q, period: period}
	q.out.lock()
	a.timer = time.AfterFunc(period, a.beat)
	q.out.unlock()
	return func() {
		q.out.lock()
		defer q.out.unlock()
		a.timer.Stop()
		a.timer = nil
	}
}

func (a *awake) beat() {
	a.q.out.lock()
	defer a.q.out.unlock()
	if a.timer == nil {
		return
	}
	wait := a.period - time.Since(a.q.out.last)
	if wait <= 0 {
		a.q.commit()
		_ = a.q.out.send(a.q.w, comment)
		wait = a.period
	}
	a.timer.Reset(wait)
}

// outlet is the way to the client of one request: whole frames, one writer at a time.
type outlet struct {
	*http.ResponseController
	mu        sync.Mutex
	last      time.Time // of the last write
	committed bool      // status and headers of a stream are out
}

func (o *outlet) lock()   { o.mu.Lock() }
func (o *outlet) unlock() { o.mu.Unlock() }

// send writes and flushes. The caller holds the lock. The first write takes the head along,
// which needs a deep stack: it has a goroutine of its own, so that the stream's own stack
// stays small for as long as it waits.
func (o *outlet) send(w http.ResponseWriter, b []byte) error {
	first := o.last.IsZero()
	o.last = time.Now()
	if !first {
		return o.write(w, b)
	}
	done := make(chan error)
	go func() { done <- o.write(w, b) }()
	return <-done
}

func (o *outlet) write(w http.ResponseWriter, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return o.Flush()
}

// commit sets the head of a stream, which leaves with the first frame. The caller holds the
// outlet's lock.
func (q *request) commit() {
	if q.out.committed {
		return
	}
	q.out.committed = true
	q.row.Status = ptr(http.StatusOK)
	q.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	left := q.row.Arrived + q.r.set.requestTimeout.Seconds() - q.r.own.now()
	// A write that fails at the request's own deadline would leave no way to tell of it.
	_ = q.out.SetWriteDeadline(time.Now().Add(dur(left) + lastEvent))
	q.w.WriteHeader(http.StatusOK)
}

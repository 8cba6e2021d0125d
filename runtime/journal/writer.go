package journal

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Writer appends rows from its own goroutine. Its methods are safe for concurrent use. Put
// and Event never wait; PutWait and Close do, within limits.
//
// While the file cannot be written, what is queued stays queued: the writer tries again,
// ever less often, and goes on where the last whole line ended.
type Writer struct {
	q       *queue
	opt     Options
	done    chan struct{}
	abandon chan struct{} // closed when Close no longer waits
	leave   sync.Once

	mu     sync.Mutex
	health Health
	since  time.Time // of the failure
	err    error     // of the failure
	final  error     // of the end
}

// Open appends to the file at path, which it holds against every other writer until Close:
// Take and Start in one.
func Open(path, run string, meta Meta, o ...Options) (*Writer, error) {
	h, err := Take(path)
	if err != nil {
		return nil, err
	}
	return h.Start(run, meta, o...)
}

// New writes to w, which Close closes. Such a journal is never rotated.
func New(w io.WriteCloser, run string, meta Meta, o ...Options) *Writer {
	f, ok := w.(file)
	if !ok {
		f = stream{w}
	}
	var opt Options
	if len(o) > 0 {
		opt = o[0]
	}
	return newWriter(&disk{f: f}, run, meta, opt)
}

func newWriter(d *disk, run string, meta Meta, o Options) *Writer {
	o = o.filled()
	j := &Writer{q: newQueue(o), opt: o, done: make(chan struct{}), abandon: make(chan struct{})}
	j.health.Capacity = o.Rows
	d.began = o.now()
	s := &scribe{j: j, d: d, enc: newEncoder(run), meta: meta}
	go s.run()
	return j
}

// Put queues a request's row, which the caller changes no more; false when the queue is
// full, or closed, and the row is lost.
func (j *Writer) Put(r Row) bool { return j.PutWait(never, r) }

// PutWait is Put, but in a lossless journal it waits for room until ctx ends.
func (j *Writer) PutWait(ctx context.Context, r Row) bool {
	it := item{row: r, size: sizeOf(&r)}
	return j.q.put(ctx, &it)
}

// eventSize is what an event counts for; few of them are ever queued.
const eventSize = 1024

// Event queues an event, whose fields the caller changes no more; false when it is lost.
func (j *Writer) Event(e Event) bool {
	it := item{event: &e, size: eventSize}
	return j.q.put(never, &it)
}

// Dropped is how many lines were lost: queue full or closed, not encodable, or given up at
// the end.
func (j *Writer) Dropped() uint64 { return j.q.losses() }

// Written is how many lines reached the file, meta lines included.
func (j *Writer) Written() uint64 { return j.Health().Written }

// Err is why the file cannot be written at present; nil while all is well.
func (j *Writer) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Health tells how the writer does.
func (j *Writer) Health() Health {
	j.mu.Lock()
	h := j.health
	if j.err != nil {
		h.Failing, h.Error = true, j.err.Error()
		h.FailingS = j.opt.now().Sub(j.since).Seconds()
	}
	j.mu.Unlock()
	j.q.mu.Lock()
	defer j.q.mu.Unlock()
	h.Dropped, h.Queued, h.Held, h.HighWater, h.Waiting = j.q.dropped, len(j.q.items)+j.q.taken, j.q.held, j.q.high, j.q.waiting
	return h
}

// Close writes what is queued, syncs and closes the file. A file that cannot be written is
// tried again until ctx ends, 10 s at most; what is lost then is an error.
func (j *Writer) Close(ctx context.Context) error {
	j.q.close()
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-j.done:
		return j.ended()
	case <-ctx.Done():
	case <-limit.C:
	}
	j.leave.Do(func() { close(j.abandon) })
	// The goroutine ends now, unless the file holds it in a write.
	last := time.NewTimer(closeGrace)
	defer last.Stop()
	select {
	case <-j.done:
		return j.ended()
	case <-last.C:
		return fmt.Errorf("close journal: a write does not return: %w", context.DeadlineExceeded)
	}
}

const closeGrace = 200 * time.Millisecond

func (j *Writer) ended() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.final
}

// outcome is what one write changed.
type outcome struct {
	began error   // of a failure that begins
	ended bool    // a failure is over
	was   error   // the one that is over
	after float64 // seconds that it lasted
}

// note records one write's outcome.
func (j *Writer) note(lines int, n int, err error) (o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.health.Written += uint64(lines)
	j.health.Bytes += uint64(n)
	switch before := j.err; {
	case err != nil:
		j.health.Errors++
		j.err = fmt.Errorf("write journal: %w", err)
		if before == nil {
			j.since = j.opt.now()
			o.began = j.err
		}
	case before != nil:
		o = outcome{ended: true, was: before, after: j.opt.now().Sub(j.since).Seconds()}
		j.err = nil
	}
	return o
}

func (j *Writer) reopened() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.health.Reopened++
}

func (j *Writer) rotated(done bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if done {
		j.health.Rotations++
	}
	if err != nil {
		j.health.Errors++
	}
}

// clock is the router's, or not a number.
func (j *Writer) clock() float64 {
	if j.opt.Clock == nil {
		return math.NaN()
	}
	return j.opt.Clock()
}

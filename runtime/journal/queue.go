package journal

import (
	"context"
	"sync"
)

// item is one line on its way: an event, or else a row. The row lies here by value, so that
// a queued row costs no allocation of its own.
type item struct {
	row   Row
	event *Event
	size  int64
}

// queue holds lines until the disk has them. An item counts against the bounds until
// release says that it was written.
type queue struct {
	rows     int
	bytes    int64
	lossless bool
	wake     chan struct{} // has a value when the writer has something to look at

	mu      sync.Mutex
	items   []item
	taken   int // items at the writer
	held    int64
	high    int
	waiting int
	room    chan struct{} // closed when room returns; nil while nobody waits
	closed  bool
	ended   bool
	dropped uint64
}

func newQueue(o Options) *queue {
	return &queue{rows: o.Rows, bytes: o.Bytes, lossless: o.Lossless, wake: make(chan struct{}, 1)}
}

// put queues an item. Without room it is lost, or waits until ctx ends in a lossless
// queue. An event never waits: its caller may be what frees the queue, and in a lossless
// queue it may exceed the bounds by a quarter instead.
func (q *queue) put(ctx context.Context, it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.dropped++
		return false
	}
	for !q.fits(it) {
		if q.ended || !q.lossless || it.event != nil || ctx.Err() != nil {
			q.dropped++
			q.kick()
			return false
		}
		q.wait(ctx)
	}
	q.items = append(q.items, *it)
	q.held += it.size
	q.high = max(q.high, len(q.items)+q.taken)
	q.kick()
	return true
}

func (q *queue) fits(it *item) bool {
	n, rows, bytes := len(q.items)+q.taken, q.rows, q.bytes
	if q.lossless && it.event != nil {
		rows, bytes = rows+rows/4+1, bytes+bytes/4
	}
	return n == 0 || n < rows && q.held+it.size <= bytes
}

// wait gives the lock up until room returns or ctx ends.
func (q *queue) wait(ctx context.Context) {
	if q.room == nil {
		q.room = make(chan struct{})
	}
	room := q.room
	q.waiting++
	q.mu.Unlock()
	select {
	case <-room:
	case <-ctx.Done():
	}
	q.mu.Lock()
	q.waiting--
}

func (q *queue) kick() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// keptItems bounds the memory that a burst leaves behind.
const keptItems = 8192

// take hands all queued items over and keeps spare, emptied, for the next ones.
func (q *queue) take(spare []item) []item {
	clear(spare)
	if cap(spare) > keptItems {
		spare = nil // a burst is over
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.items
	q.items = spare[:0]
	q.taken += len(out)
	return out
}

// release frees the room of written, or lost, items.
func (q *queue) release(n int, bytes int64) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken -= n
	q.held -= bytes
	q.letIn()
}

func (q *queue) letIn() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// drop counts lines that the writer could not write.
func (q *queue) drop(n int) {
	q.mu.Lock()
	q.dropped += uint64(n)
	q.mu.Unlock()
}

// close ends the taking of new items; those that wait already still get in.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.kick()
}

// drained reports that nothing is queued and nothing more can come.
func (q *queue) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.items) == 0 && q.waiting == 0
}

// end gives up on everything that is still here and returns how much that was.
func (q *queue) end() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.ended = true, true
	n := len(q.items) + q.taken
	q.dropped += uint64(n)
	q.items, q.taken, q.held = nil, 0, 0
	q.letIn()
	return n
}

func (q *queue) losses() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Package loglines stands between a process and the stream of its log.
//
// It promises that a write never waits for the reader of the stream: lines beyond a bound are
// dropped and counted, and once the stream takes text again a line says how many they were.
// It refuses to write anywhere but in one goroutine.
package loglines

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Most bytes wait for the stream, beside as many that are being written.
const Most = 1 << 20

// Queue is a writer of whole lines.
type Queue struct {
	to   io.Writer
	tell func(to io.Writer, dropped int)

	mu      sync.Mutex
	change  *sync.Cond
	waiting [][]byte
	bytes   int
	writing bool
	untold  int
	dropped int
	ended   bool
}

// New starts a queue in front of a stream. tell writes the line that says how many lines are
// missing; it is called between two others.
func New(to io.Writer, tell func(to io.Writer, dropped int)) *Queue {
	q := &Queue{to: to, tell: tell}
	q.change = sync.NewCond(&q.mu)
	go q.drain()
	return q
}

// Write takes a copy of b, or drops it. It never fails.
func (q *Queue) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// After a drop nothing is taken until the stream moves: what is missing is missing in one place.
	if q.ended || q.untold > 0 || q.bytes+len(b) > Most {
		q.drop(b)
		return len(b), nil
	}
	q.waiting = append(q.waiting, bytes.Clone(b))
	q.bytes += len(b)
	q.change.Broadcast()
	return len(b), nil
}

func (q *Queue) drop(b []byte) {
	n := max(1, bytes.Count(b, []byte{'\n'}))
	q.untold += n
	q.dropped += n
}

// Dropped is how many lines the stream did not get.
func (q *Queue) Dropped() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Close waits until the stream has what waits, but no longer than limit. What is written later
// is dropped.
func (q *Queue) Close(limit time.Duration) {
	late := time.AfterFunc(limit, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waiting, q.bytes, q.writing = nil, 0, false
		q.change.Broadcast()
	})
	defer late.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.change.Broadcast()
	for len(q.waiting) > 0 || q.writing {
		q.change.Wait()
	}
}

// drain writes until the queue has ended and is empty.
func (q *Queue) drain() {
	for {
		lines, missing := q.next()
		if len(lines) == 0 && missing == 0 {
			return
		}
		for _, b := range lines {
			if _, err := q.to.Write(b); err != nil {
				q.mu.Lock()
				q.drop(b)
				q.mu.Unlock()
			}
		}
		if missing > 0 {
			q.tell(q.to, missing)
		}
	}
}

// next waits for lines, and returns them with how many were dropped behind them;
// neither at the end.
func (q *Queue) next() (lines [][]byte, missing int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = false
	q.change.Broadcast()
	for len(q.waiting) == 0 && q.untold == 0 && !q.ended {
		q.change.Wait()
	}
	lines, missing = q.waiting, q.untold
	q.waiting, q.bytes, q.untold = nil, 0, 0
	q.writing = len(lines) > 0 || missing > 0
	return lines, missing
}

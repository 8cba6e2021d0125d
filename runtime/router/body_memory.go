package router

import (
	"errors"
	"math"
	"sync"
	"time"
)

const (
	// Bodies of the largest size that the router holds at once, unless
	// serving.body_memory_bytes says otherwise.
	bodiesAtOnce = 64
	// A body without a byte for so long is ended when another one needs its memory.
	bodyIdle = time.Second
	// From so many bytes at once the memory of bodies that have left is given back at the next
	// monitoring pass, and does not wait for the collector's own time.
	relieveFrom = 64 << 20
)

var (
	errBodyMemory = errors.New("no memory for another body")
	errBodySlow   = errors.New("body came too slowly")
)

// bodies bounds the bytes of clients' bodies that the router holds: those on their way in, and
// those of requests whose legs may still be sent.
type bodies struct {
	limit int64

	mu       sync.Mutex
	held     int64
	peak     int64 // since the last relief
	arriving map[*payload]struct{}
}

func newBodies(limit int64) *bodies {
	return &bodies{limit: limit, arriving: map[*payload]struct{}{}}
}

// bodyMemory is the limit of a router, never less than one body.
func (s *settings) bodyMemory() int64 {
	v := s.Fleet.Serving
	if v.BodyMemoryBytes > 0 {
		return max(v.BodyMemoryBytes, v.MaxRequestBytes)
	}
	return bodiesAtOnce * min(v.MaxRequestBytes, math.MaxInt64/bodiesAtOnce)
}

// payload is the body of one client. Its bytes count until drop.
type payload struct {
	of    *bodies
	bytes []byte

	// Under of.mu:
	size    int64     // of its buffer
	moved   time.Time // when its last bytes came
	yielded bool      // its memory went to another one
	stop    func()    // ends its read
}

// charge lets the body's buffer have size bytes, at the expense of bodies that stand still
// where that is needed.
func (b *payload) charge(size int64) error {
	m := b.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.yielded {
		return errBodySlow
	}
	more := size - b.size
	for m.held+more > m.limit {
		idle := m.idlest(time.Now().Add(-bodyIdle), b)
		if idle == nil {
			return errBodyMemory
		}
		idle.yielded = true
		m.held -= idle.size
		idle.size = 0
		delete(m.arriving, idle)
		idle.stop()
	}
	m.held += more
	m.peak = max(m.peak, m.held)
	b.size = size
	return nil
}

// idlest is the arriving body, but for one, that has stood still for longest, since before a
// moment; nil for none.
func (m *bodies) idlest(before time.Time, but *payload) (idle *payload) {
	for b := range m.arriving {
		if b != but && b.size > 0 && b.moved.Before(before) && (idle == nil || b.moved.Before(idle.moved)) {
			idle = b
		}
	}
	return idle
}

// move notes progress, and reports whether the body may go on.
func (b *payload) move(now time.Time) bool {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.moved = now
	return !b.yielded
}

// drop lets go of the bytes; a second time it does nothing. nil is no body.
func (b *payload) drop() {
	if b == nil {
		return
	}
	b.bytes = nil
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.of.held -= b.size
	b.size = 0
	delete(b.of.arriving, b)
}

// bytesHeld is for the metrics.
func (m *bodies) bytesHeld() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// spent reports, once, that most of what was held has left.
func (m *bodies) spent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peak < relieveFrom || m.held > m.peak/8 {
		return false
	}
	m.peak = m.held
	return true
}

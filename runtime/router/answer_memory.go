package router

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// freeAnswer bytes of an answer are free: the seats bound them, and a stream rarely needs more.
const freeAnswer = 4 << 10

var errAnswerMemory = errors.New("no memory for more of an answer: the answers that are held have all of serving.body_memory_bytes")

// answers bounds the bytes of engines' answers that the router holds: those that are read whole,
// and of streams what is not passed on yet.
type answers struct {
	limit int64

	mu    sync.Mutex
	held  int64
	peak  int64 // since the last relief
	ended int   // for want of memory
}

func newAnswers(limit int64) *answers { return &answers{limit: limit} }

func (m *answers) portion() *portion { return &portion{of: m} }

// answerMemory is the limit of a router, never less than one answer.
func (s *settings) answerMemory() int64 { return max(s.bodyMemory(), s.Fleet.Serving.MaxResponseBytes) }

// portion is what one answer holds, until drop.
type portion struct {
	of   *answers
	size atomic.Int64 // written under of.mu
	gone bool         // under of.mu
}

// hold lets the answer have size bytes in all, which may be less than before.
func (p *portion) hold(size int64) error {
	if size <= freeAnswer {
		size = 0
	}
	if size == p.size.Load() {
		return nil
	}
	m := p.of
	m.mu.Lock()
	defer m.mu.Unlock()
	more := size - p.size.Load()
	if p.gone || more > 0 && m.held+more > m.limit {
		m.ended++
		return errAnswerMemory
	}
	m.held += more
	m.peak = max(m.peak, m.held)
	p.size.Store(size)
	return nil
}

// drop lets go of the bytes, for good. A second time it does nothing.
func (p *portion) drop() {
	m := p.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= p.size.Swap(0)
	p.gone = true
}

// readAll reads an answer of at most limit bytes, which errors call what.
func (p *portion) readAll(r io.Reader, what string, limit int64) ([]byte, error) {
	b := make([]byte, 0, 1<<10)
	for {
		if len(b) == cap(b) {
			size := min(2*int64(cap(b)), limit+1)
			if int64(len(b)) > limit {
				return nil, &engine.TooLargeError{What: what, Limit: limit}
			}
			if err := p.hold(size); err != nil {
				return nil, err
			}
			b = append(make([]byte, 0, size), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, &engine.TooLargeError{What: what, Limit: limit}
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// noAnswerMemory is the end of an answer that found no memory. The engine is not to blame.
func noAnswerMemory(phase, iid string) *failure {
	f := engineFault(phase, iid, model.ReasonLimit, classNone, errAnswerMemory.Error(), false)
	f.message = "The answers in the router take all the memory that they may have together"
	return f
}

// told is for the metrics.
func (m *answers) told() (held int64, ended int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held, m.ended
}

// spent reports, once, that most of what was held has left.
func (m *answers) spent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peak < relieveFrom || m.held > m.peak/8 {
		return false
	}
	m.peak = m.held
	return true
}

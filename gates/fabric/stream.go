package fabric

import (
	"errors"
	"net"
	"sync"
	"time"
)

// meter counts the bytes that arrive within a window of time.
type meter struct {
	mu          sync.Mutex
	bytes       int64
	from, until time.Time
}

// open sets the window; bytes before it, while the streams gather speed, do not count.
func (m *meter) open(begin time.Time, skip, length time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.from, m.until = begin.Add(skip), begin.Add(length)
}

func (m *meter) add(n int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.until.IsZero() && !now.Before(m.from) && !now.After(m.until) {
		m.bytes += int64(n)
	}
}

func (m *meter) read() (int64, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes, m.until.Sub(m.from)
}

// drain counts what arrives until the stream ends.
func drain(c net.Conn, m *meter) {
	buf := make([]byte, chunk)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			m.add(n, time.Now())
		}
		if err != nil {
			return
		}
	}
}

// fill sends until the time is over, and tells what the socket did.
func fill(c net.Conn, until time.Time) tally {
	var t tally
	buf := make([]byte, chunk)
	_ = c.SetWriteDeadline(until)
	for time.Now().Before(until) {
		n, err := c.Write(buf)
		t.Bytes += int64(n)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			break
		}
		if err != nil {
			break
		}
	}
	t.Segments, t.Retransmits = segments(c)
	return t
}

// abandon closes a stream and drops what still waits to be sent, so that it is not in the
// way of the next transfer.
func abandon(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

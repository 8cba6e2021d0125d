package router

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Connections beyond the bound, for whoever watches the router while clients have all others.
	spareClients = 4
	// A spare connection without a request for so long, or whose client is waited for that long,
	// makes room for a new one.
	spareGrace = 100 * time.Millisecond
	// What a client may take for its request's body and for the answer on a spare connection.
	spareLimit = 5 * time.Second
)

// spareConn is a connection beyond the bound. It serves one request, unless it finds a place within,
// and knows for how long its
// client has been waited for: such a one makes room for a new connection too.
type spareConn struct {
	net.Conn
	within atomic.Bool // it has a place within the bound now

	mu     sync.Mutex
	since  time.Time // of the present wait, zero = none
	waited time.Duration
}

func (c *spareConn) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
}

func (c *spareConn) came() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited, c.since = c.waited+time.Since(c.since), time.Time{}
}

// patience is how long the client has been waited for in all; zero while it is not.
func (c *spareConn) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0
	}
	return c.waited + time.Since(c.since)
}

func (c *spareConn) Write(b []byte) (int, error) {
	c.wait()
	defer c.came()
	return c.Conn.Write(b)
}

// CloseWrite is what the server ends a connection with after it refused a body. Then it waits for
// the client to close.
func (c *spareConn) CloseWrite() error {
	c.wait()
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// spareBody is the body of a request on a spare connection.
type spareBody struct {
	io.ReadCloser
	conn *spareConn
}

func (s spareBody) Read(b []byte) (int, error) {
	s.conn.wait()
	defer s.conn.came()
	return s.ReadCloser.Read(b)
}

// slowest takes out the spare connection whose client has been waited for longest, when that is
// longer than the grace; nil for none.
func (p *pool) slowest(grace time.Duration) (slow net.Conn) {
	for conn := range p.open {
		if c, ok := conn.(*spareConn); ok && p.open[conn] == nil && c.patience() > grace {
			slow, grace = conn, c.patience()
		}
	}
	delete(p.open, slow)
	return slow
}

type spareKey struct{}

// spareContext marks the requests of spare connections. It is the server's ConnContext.
func spareContext(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*headConn); ok {
		if spare, ok := h.Conn.(*spareConn); ok {
			return context.WithValue(ctx, spareKey{}, spare)
		}
	}
	return ctx
}

// watches reports whether a path tells of the router itself, or steers it.
func watches(path string) bool {
	return path == "/health" || path == "/ready" || path == "/metrics" || strings.HasPrefix(path, "/narwhal/")
}

// spared bounds a request on a spare connection, and refuses it when it is none of those that these
// are kept for. false means that it is answered.
func (c *clients) spared(w http.ResponseWriter, q *http.Request) bool {
	conn, spare := q.Context().Value(spareKey{}).(*spareConn)
	if !spare || conn.within.Load() || !watches(q.URL.Path) && c.promote(conn) {
		return true
	}
	w.Header().Set("Connection", "close")
	until := time.Now().Add(spareLimit)
	control := http.NewResponseController(w)
	if q.Method == http.MethodGet || q.Method == http.MethodHead {
		_ = control.SetWriteDeadline(until)
	}
	if watches(q.URL.Path) {
		_ = control.SetReadDeadline(until)
		q.Body = spareBody{q.Body, conn}
		return true
	}
	_ = control.SetReadDeadline(time.Now()) // what is left of the body is not waited for
	_ = control.SetWriteDeadline(until)
	f := coded(http.StatusServiceUnavailable, "connections", "all connections that clients may have are in a request")
	f.retryAfter = 1
	w.Header().Set("Retry-After", seconds(f.retryAfter))
	told(f, false)
	writeBody(w, f.status, f.body())
	return false
}

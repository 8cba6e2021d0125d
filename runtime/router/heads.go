package router

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// heads is a listener whose connections answer 408 when a head does not arrive in time: the
// server itself takes the half of it for a broken one, or says nothing.
type heads struct {
	net.Listener
	within time.Duration
}

func (l heads) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: c, within: l.within}, nil
}

type headConn struct {
	net.Conn
	within time.Duration
	inside atomic.Bool // a request's head is whole, and its answer is not
	begun  atomic.Bool // bytes of a next head have come
}

// headState tells heads from what follows them, and hands on what the server says of the
// connections below.
func headState(next func(net.Conn, http.ConnState)) func(net.Conn, http.ConnState) {
	return func(c net.Conn, s http.ConnState) {
		h, ok := c.(*headConn)
		if !ok {
			next(c, s)
			return
		}
		switch s {
		case http.StateActive:
			h.inside.Store(true)
		case http.StateIdle:
			h.begun.Store(false)
			h.inside.Store(false)
		}
		next(h.Conn, s)
	}
}

// lastWrite is how long a client may take for an answer that ends its connection.
const lastWrite = time.Second

func (c *headConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.inside.Load() {
		return n, err
	}
	if n > 0 {
		c.begun.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.begun.Load() {
		c.late()
	}
	return n, err
}

func (c *headConn) late() {
	f := invalid("", "the request head did not arrive within %s", c.within)
	f.status, f.typ, f.terminal = http.StatusRequestTimeout, "request_timeout", ""
	told(f, false)
	body := f.body()
	_ = c.SetWriteDeadline(time.Now().Add(lastWrite))
	_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", f.status, http.StatusText(f.status), len(body), body)
	_ = c.Close()
}

// CloseWrite is what the server ends a connection with after it refused a body.
func (c *headConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

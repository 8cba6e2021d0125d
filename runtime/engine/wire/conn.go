package wire

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"
)

// ErrHead: the head of an answer is larger than allowed.
var ErrHead = errors.New("answer head is too large")

// conn is one connection with its reader.
type conn struct {
	pool *Pool
	net  net.Conn
	br   *bufio.Reader
	last time.Time // end of its last call
	room int64     // bytes that may still be read; negative = no bound
	got  bool      // something was read since the call began
}

func newConn(p *Pool, n net.Conn) *conn {
	c := &conn{pool: p, net: n}
	c.br = bufio.NewReaderSize(c, 2<<10)
	return c
}

// Read bounds the head of an answer.
func (c *conn) Read(b []byte) (int, error) {
	if c.room == 0 {
		return 0, ErrHead
	}
	if c.room > 0 && int64(len(b)) > c.room {
		b = b[:c.room]
	}
	n, err := c.net.Read(b)
	if n > 0 {
		c.got = true
	}
	if c.room > 0 {
		c.room -= int64(n)
	}
	return n, err
}

// body is an answer's body that gives its connection back at the end.
type body struct {
	io.ReadCloser
	c     *conn
	stop  func() bool // ends the watch of the context; false when that has fired
	again bool        // the connection may be used again
	done  bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end(b.again && b.c.br.Buffered() == 0)
	case err != nil:
		b.end(false)
		b.again = false
	}
	return n, err
}

// Close drops the connection of an answer that was not read to its end, which aborts the
// request at the engine.
func (b *body) Close() error {
	b.end(false)
	return nil
}

func (b *body) end(again bool) {
	if b.done {
		return
	}
	b.done = true
	again = b.stop() && again
	b.c.pool.give(b.c, again)
}

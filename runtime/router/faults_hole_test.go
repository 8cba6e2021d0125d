package router

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// hole carries TCP to one engine and, while it is open, swallows all bytes of both sides: what
// a peer sees of a machine that lost its power, or of a firewall that forgot a connection.
type hole struct {
	target string
	l      net.Listener
	mu     sync.Mutex
	open   bool
	conns  []net.Conn
	work   sync.WaitGroup
}

// holed puts a hole between the router and an engine.
func holed(t *testing.T, h *hole, iid string) tweak {
	return func(c *Config) {
		for i := range c.Fleet.Engines {
			e := &c.Fleet.Engines[i]
			if e.IID != iid {
				continue
			}
			u, err := url.Parse(e.URL)
			if err != nil {
				t.Fatal(err)
			}
			if h.l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			h.target, e.URL = u.Host, "http://"+h.l.Addr().String()
			h.work.Go(h.accept)
			t.Cleanup(func() { h.l.Close(); h.end(); h.work.Wait() })
		}
	}
}

func (h *hole) accept() {
	for {
		down, err := h.l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", h.target)
		if err != nil {
			down.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, down, up)
		h.mu.Unlock()
		h.work.Go(func() { h.copy(up, down) })
		h.work.Go(func() { h.copy(down, up) })
	}
}

// copy never tells one side that the other has closed while the hole is open.
func (h *hole) copy(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		h.mu.Lock()
		open := h.open
		h.mu.Unlock()
		if open {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = io.EOF
			}
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

func (h *hole) swallow() {
	h.mu.Lock()
	h.open = true
	h.mu.Unlock()
}

// end closes every connection, as a machine does that starts again.
func (h *hole) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
	for _, c := range h.conns {
		c.Close()
	}
	h.conns = nil
}

// vanishing is a moment at which an engine's machine is gone without a word.
type vanishing struct {
	name, at, sees string
	inject         []shot
	moment         func(b *testbed) // nil = before the request
}

var vanishings = []vanishing{
	{"P vanishes before leg 1", "p0", "200", nil, nil},
	{"P vanishes while it prefills", "p0", "200", []shot{slow("p0", 5000)}, func(b *testbed) { b.until("p0", running) }},
	{"D vanishes before leg 2", "d0", "200", nil, nil},
	{"D vanishes in its first step", "d0", "200", []shot{slow("d0", 5000)}, func(b *testbed) { b.until("d0", running) }},
	{"D vanishes mid-stream", "d0", midStream, []shot{slow("d0", 20)}, func(b *testbed) { b.flowing("d0") }},
}

func TestFaultsHalfOpenTCP(t *testing.T) {
	t.Parallel()
	settles(t)
	together(t, vanishings, func(c vanishing) string { return c.name }, func(t *testing.T, c vanishing) { c.run(t) })
}

func (c vanishing) run(t *testing.T) {
	var h hole
	b := startFleet(t, 2, 2, nil, steered, patience(3), holed(t, &h, c.at), func(c *Config) { c.Fleet.Serving.PrefillTimeoutS = 3 })
	q := matrixRow{}.ask(true)
	q["max_tokens"] = 100
	want := b.unsplit("p1", q)
	for _, s := range c.inject {
		b.inject(s.at, s.Injection)
	}
	var beside sync.WaitGroup
	at := time.Now()
	if c.moment == nil {
		h.swallow()
	} else {
		beside.Go(func() { c.moment(b); h.swallow() })
	}
	s := watch(long(t), b.client(), b.url, q, "", nil)
	beside.Wait()
	if err := s.right(want, true); err != nil || s.short() != c.sees {
		t.Errorf("the client sees %s, want %s: %v", s.short(), c.sees, err)
	}
	t.Logf("%s: answered after %v", c.name, time.Since(at).Round(time.Millisecond))
	h.end()
	if err := b.settle(); err != nil {
		t.Error(err)
	}
	if rows := b.rows(); len(rows) != 1 || rows[0].Attempts > 2 {
		t.Errorf("rows %+v", rows)
	}
}

package router

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestClientLimit(t *testing.T) {
	for _, c := range []struct {
		files          uint64
		seats, engines int
		want           int
	}{
		{1 << 20, 256, 8, 1<<20 - 28 - 16 - 512},
		{1024, 256, 8, 468},
		{1024, 1024, 8, 326}, // each connection may have two legs
		{80, 256, 2, 16},
		{40, 256, 2, 4},
		{8, 1, 1, 4},
		{1<<64 - 1, 256, 8, 1<<30 - 28 - 16 - 512},
	} {
		if got := ClientLimit(c.files, c.seats, c.engines); got != c.want {
			t.Errorf("%d files, %d seats, %d engines: %d, want %d", c.files, c.seats, c.engines, got, c.want)
		}
	}
}

// Silent connections and ones that rest between requests make room for new ones, the oldest first,
// once they have had a moment for their first bytes.
func TestIdleClientsMakeRoom(t *testing.T) {
	var log lockedText
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.HTTP.MaxClients = 3; c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	addr := b.router.Addr()
	var silent []net.Conn
	for range 9 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for i, c := range silent[:2] {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
			t.Errorf("connection %d is still open: %v", i, err)
		}
	}
	for range 3 {
		if x := b.complete(body(false, 2)); x.status != 200 {
			t.Fatalf("%d %s", x.status, x.body)
		}
	}
	page := b.get("/metrics", nil)
	open, closed := b.router.listener.count()
	if page != 200 || open > 3+spareClients || closed < 2 {
		t.Errorf("%d open, %d closed, metrics %d", open, closed, page)
	}
	if n := strings.Count(log.String(), "clients have all connections"); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
}

// While all connections are in a request, a new one is a spare one, and the running ones go on.
func TestBusyClientsAreWaitedFor(t *testing.T) {
	slow := quick()
	slow.DecodeD = 0.02
	b := startBed(t, 1, 1, slow, func(c *Config) { c.HTTP.MaxClients = 1 })
	stream := make(chan answer, 1)
	go func() { stream <- b.complete(body(true, 40)) }()
	eventually(t, "the stream runs", func() bool { return b.router.own.view.Load() != nil && b.resident() > 0 })
	c, err := net.Dial("tcp", b.router.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	if x := <-stream; x.status != 200 || strings.Count(x.body, "[DONE]") != 1 {
		t.Errorf("the stream was cut: %d %.200s", x.status, x.body)
	}
}

// resident tells without a connection how many requests decode.
func (b *testbed) resident() (n int) {
	b.router.own.do(func() {
		for _, e := range b.router.own.nodes {
			_, d := e.resident()
			n += d
		}
	})
	return n
}

// While all connections are in slow requests, the router still tells of itself, and takes orders; other
// requests are refused at once.
func TestCrowdedRouterIsWatched(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.HTTP.MaxClients = 3 })
	for i := range 3 + 20 {
		c, err := net.Dial("tcp", b.router.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			eventually(t, "the request", func() bool { return b.busy() == i+1 })
		}
	}
	for _, path := range []string{"/health", "/ready", "/metrics", "/narwhal/state", "/ready"} {
		if status, _, _ := b.raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	status, head, text := b.raw("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	if status != 503 || head.Get("Retry-After") != "1" || !strings.Contains(text, `"code":"connections"`) {
		t.Errorf("%d %v %s", status, head, text)
	}
	if open, _ := b.router.listener.count(); open > 3+spareClients {
		t.Errorf("%d connections are open", open)
	}
}

// Silent spare connections make room for those that ask.
func TestSilentSparesMakeRoom(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.HTTP.MaxClients = 1 })
	for i := range 1 + 3*spareClients {
		c, err := net.Dial("tcp", b.router.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i > 0 {
			continue
		}
		if _, err := io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the request", func() bool { return b.busy() == 1 })
	}
	if status, _, _ := b.raw("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 200 {
		t.Error(status)
	}
}

// Spare connections of clients that are waited for, with the rest of an order's body or after their
// refusal, make room for those that ask.
func TestSlowSparesMakeRoom(t *testing.T) {
	const refused = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n{"
	for name, request := range map[string]string{
		"a slow order": "POST /narwhal/lifecycle/drain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{",
		"one refused":  refused,
	} {
		t.Run(name, func(t *testing.T) {
			b := startBed(t, 1, 1, quick(), func(c *Config) { c.HTTP.MaxClients = 1 })
			for i := range 1 + 2*spareClients {
				c, err := net.Dial("tcp", b.router.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				text := request
				if i == 0 {
					text = refused
				}
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					eventually(t, "the request", func() bool { return b.busy() == 1 })
				}
			}
			status, _, _ := b.raw("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
			// Of the refused ones some may have ended by themselves.
			if _, closed := b.router.listener.count(); status != 200 || closed == 0 {
				t.Errorf("%d, and %d made room", status, closed)
			}
		})
	}
}

// Who reads slowly is waited for in all of its writes.
func TestSpareIsPatientOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		p := newPool(1)
		c := &spareConn{Conn: near}
		p.add(c)
		p.state(c, http.StateActive)
		go func() {
			for range 3 {
				_, _ = c.Write([]byte("x"))
			}
		}()
		for i, want := range []bool{false, false, true} {
			time.Sleep(spareGrace * 2 / 5)
			synctest.Wait()
			if got := p.slowest(spareGrace) != nil; got != want {
				t.Errorf("write %d: taken %v, want %v", i, got, want)
			}
			_, _ = far.Read(make([]byte, 1))
			synctest.Wait()
		}
		if c.patience() != 0 {
			t.Error("nobody is waited for")
		}
		_, _ = near.Close(), far.Close()
	})
}

// A connection whose request has come makes no room, however busy the server is elsewhere; nor does
// one that is new.
func TestComingRequestsStay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPool(3)
	var far [3]net.Conn
	for i := range far {
		if far[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer far[i].Close()
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if i == 0 {
			in = &spareConn{Conn: in}
		}
		p.add(in)
	}
	if gone := p.idlest(0); gone != nil {
		t.Error("a new connection made room")
	}
	if _, err := far[0].Write([]byte("G")); err != nil {
		t.Fatal(err)
	}
	var gone net.Conn
	eventually(t, "the silent one makes room", func() bool { gone = p.idlest(0); return gone != nil })
	if got, want := gone.RemoteAddr().String(), far[1].LocalAddr().String(); got != want {
		t.Errorf("%s made room, want %s, whose request has not come", got, want)
	}
}

// busy is how many connections within the bound are in a request.
func (b *testbed) busy() int {
	l := b.router.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all.open) - l.all.rest.Len()
}

// A listener that ends lets go of who waits at the bound.
func TestClientsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newClients(l, 1, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	for i := range 1 + spareClients + 1 {
		p, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if i > spareClients {
			break
		}
		in, err := c.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		c.state(in, http.StateActive)
	}
	go func() { _, err := c.Accept(); ended <- err }()
	_ = c.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// script answers each call on a connection with the next text; "" closes, "hang" waits for
// the client to go. It counts connections and calls.
type script struct {
	addr         string
	conns, calls atomic.Int64
	gone         chan struct{}
	bodies       chan string
}

func play(t *testing.T, answers ...string) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{addr: l.Addr().String(), gone: make(chan struct{}, 8), bodies: make(chan string, 64)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			go s.talk(c, answers)
		}
	}()
	return s
}

func (s *script) talk(c net.Conn, answers []string) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		b, _ := io.ReadAll(q.Body)
		s.bodies <- q.URL.Path + " " + q.Header.Get("X-Request-Id") + " " + string(b)
		a := answers[int(s.calls.Add(1)-1)%len(answers)]
		if a == "hang" {
			_, _ = c.Read(make([]byte, 1))
			s.gone <- struct{}{}
			return
		}
		if a == "" {
			return
		}
		if _, err := io.WriteString(c, strings.TrimSuffix(a, "CLOSE")); err != nil || strings.HasSuffix(a, "CLOSE") {
			return
		}
	}
}

const sized = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func get(t *testing.T, p *Pool) (string, error) {
	t.Helper()
	resp, err := p.Post(t.Context(), "/v1/x", []Field{{"X-Request-Id", "r1"}}, []byte("{}"))
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return fmt.Sprint(resp.StatusCode, " ", string(b)), err
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string
		conns        int64 // after two calls
	}{
		"sized":        {sized, "200 ok", 1},
		"chunked":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", "200 ok", 1},
		"no body":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 ", 1},
		"interim":      {"HTTP/1.1 103 Early\r\n\r\n" + sized, "200 ok", 1},
		"close":        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "200 ok", 2},
		"until close":  {"HTTP/1.1 200 OK\r\n\r\nokCLOSE", "200 ok", 2},
		"HTTP/1.0":     {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "200 ok", 2},
		"bytes behind": {sized + "HTTP/1.1 200 OK\r\n", "200 ok", 2},
		"status":       {"HTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\n!", "503 !", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.answer)
			p := New(Options{Address: s.addr})
			defer p.Close()
			for range 2 {
				if got, err := get(t, p); got != c.want || err != nil {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			if got := <-s.bodies; got != "/v1/x r1 {}" {
				t.Errorf("sent %q", got)
			}
			if n := s.conns.Load(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
			if p.Busy() != 0 {
				t.Errorf("%d seats are still taken", p.Busy())
			}
		})
	}
}

func TestBrokenAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		is     error
	}{
		"none":            {"", ErrNoAnswer},
		"half a head":     {"HTTP/1.1 200 OK\r\nContent-LeCLOSE", nil},
		"half a body":     {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nokCLOSE", io.ErrUnexpectedEOF},
		"no HTTP":         {"SSH-2.0-x\r\n\r\n", nil},
		"endless head":    {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 100)+"\r\n", 2000), ErrHead},
		"two lengths":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", nil},
		"endless interim": {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20), nil},
		"switch":          {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.answer)
			p := New(Options{Address: s.addr})
			defer p.Close()
			got, err := get(t, p)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %q, %v; want %v", got, err, c.is)
			}
			if p.Busy() != 0 {
				t.Errorf("%d seats are still taken", p.Busy())
			}
		})
	}
}

// An early refusal reaches the caller although the engine did not read the body.
func TestEarlyRefusal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	}()
	p := New(Options{Address: l.Addr().String()})
	defer p.Close()
	resp, err := p.Post(t.Context(), "/", nil, make([]byte, 512<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// The end of the context closes the connection, before the head and inside the body.
func TestAbort(t *testing.T) {
	s := play(t, "hang", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", "hang")
	p := New(Options{Address: s.addr})
	defer p.Close()
	why := errors.New("client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-s.bodies; cancel(why) }()
	if _, err := p.Post(ctx, "/", nil, nil); !errors.Is(err, why) {
		t.Errorf("before the head: %v", err)
	}
	<-s.gone
	ctx, cancel = context.WithCancelCause(t.Context())
	resp, err := p.Post(ctx, "/", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := resp.Body.Read(b); n != 1 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	cancel(why)
	if _, err := resp.Body.Read(b); !isDeadline(err) {
		t.Errorf("inside the body: %v", err)
	}
	resp.Body.Close()
	if p.Busy() != 0 || p.reuse() != nil {
		t.Error("an aborted connection is kept")
	}
}

// A connection that the engine closed while idle is not used again.
func TestStaleConnection(t *testing.T) {
	s := play(t, sized+"CLOSE")
	p := New(Options{Address: s.addr})
	defer p.Close()
	for range 20 {
		if got, err := get(t, p); err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		// Until the end of the connection has reached this side.
		p.mu.Lock()
		idle := append([]*conn(nil), p.idle...)
		p.mu.Unlock()
		for _, c := range idle {
			_ = c.net.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, _ = c.br.Peek(1)
		}
	}
	if n := s.conns.Load(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

func TestPoolIsBounded(t *testing.T) {
	s := play(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n")
	p := New(Options{Address: s.addr, MaxConns: 1, PoolTimeout: 10 * time.Millisecond})
	defer p.Close()
	resp, err := p.Post(t.Context(), "/", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Post(t.Context(), "/", nil, nil); !errors.Is(err, ErrPool) {
		t.Errorf("second call: %v", err)
	}
	resp.Body.Close()
	resp, err = p.Post(t.Context(), "/", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	l.Close()
	p = New(Options{Address: l.Addr().String()})
	var op *net.OpError
	if _, err := p.Post(t.Context(), "/", nil, nil); !errors.As(err, &op) || op.Op != "dial" || p.Busy() != 0 {
		t.Errorf("refused: %v", err)
	}
}

package fabric

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// serving starts a tester on loopback; the returned function ends it and waits.
func serving(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the tester does not end")
		}
	})
	return l.Addr().String()
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func request(address string) MeasureRequest {
	return MeasureRequest{From: "h1", To: "h2", Address: address, Streams: 2, For: fleet.Duration(100 * time.Millisecond)}
}

func TestMeasure(t *testing.T) {
	address := serving(t)
	for range 2 { // a tester takes one sample after another
		s, err := Measure(limited(t), request(address))
		if err != nil {
			t.Fatal(err)
		}
		if s.From != "h1" || s.To != "h2" || s.Tool != toolName || s.Streams != 2 || s.Bytes < 1<<20 || s.Seconds <= 0 || s.Seconds > 5 {
			t.Errorf("sample %+v", s)
		}
		if want := 8 * float64(s.Bytes) / s.Seconds / 1e9; s.Gbps != want {
			t.Errorf("%g Gbit/s, want %g", s.Gbps, want)
		}
		if s.RTT <= 0 || s.RTT > 1e6 || s.RouteFrom != s.RouteTo || !strings.HasSuffix(s.RouteFrom, " 127.0.0.1") || s.MTUFrom <= 0 || s.MTUTo != s.MTUFrom {
			t.Errorf("sample %+v", s)
		}
	}
}

// TestMeasureBothWays runs samples of one host at once, as a round does.
func TestMeasureBothWays(t *testing.T) {
	address := serving(t)
	ctx := limited(t)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() { _, errs[i] = Measure(ctx, request(address)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestMeasureRefuses(t *testing.T) {
	for name, change := range map[string]func(*MeasureRequest){
		"no port":          func(q *MeasureRequest) { q.Address = "127.0.0.1" },
		"no stream":        func(q *MeasureRequest) { q.Streams = 0 },
		"too many streams": func(q *MeasureRequest) { q.Streams = maxStreams + 1 },
		"no length":        func(q *MeasureRequest) { q.For = 0 },
	} {
		q := request("127.0.0.1:1")
		change(&q)
		if _, err := Measure(limited(t), q); err == nil || !strings.Contains(err.Error(), "want an address") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMeasureWaitsForATester connects before the tester listens.
func TestMeasureWaitsForATester(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	type sampled struct {
		s   Sample
		err error
	}
	got := make(chan sampled, 1)
	ctx := limited(t)
	go func() {
		s, err := Measure(ctx, request(address))
		got <- sampled{s, err}
	}()
	select {
	case r := <-got:
		t.Fatalf("measured nobody: %+v, %v", r.s, r.err)
	case <-time.After(60 * time.Millisecond): // a few refused connections
	}
	served, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Serve(served, address) }()
	r := <-got
	cancel()
	if err := <-done; err != nil {
		t.Skipf("somebody else took the port meanwhile: %v", err)
	}
	if r.err != nil {
		t.Error(r.err)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	// A listener that accepts and says nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := Measure(ctx, request(l.Addr().String())); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("got %v after %s", err, time.Since(begin))
	}
}

// lying answers each line of the control connection with what the test says.
func lying(t *testing.T, answers map[string]string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					b, err := r.ReadBytes('\n')
					var line control
					if err != nil || json.Unmarshal(b, &line) != nil {
						return
					}
					if line.Op == "stream" {
						_, _ = io.Copy(io.Discard, r)
						return
					}
					if _, err := io.WriteString(c, answers[line.Op]); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

func TestMeasureOfALyingTester(t *testing.T) {
	ok := map[string]string{"open": `{"op":"open","route":"eth1 \u001b[31m192.0.2.1` + strings.Repeat("x", 500) + `","mtu":9000}` + "\n", "ping": `{"op":"ping"}` + "\n", "end": `{"op":"end","bytes":1000,"seconds":1}` + "\n"}
	s, err := Measure(limited(t), request(lying(t, ok)))
	if err != nil || strings.ContainsRune(s.RouteTo, 0x1b) || len(s.RouteTo) > maxRoute {
		t.Errorf("route %q, %v", s.RouteTo, err)
	}
	for name, c := range map[string]struct{ op, answer string }{
		"no JSON":            {"open", "hello\n"},
		"an endless line":    {"open", strings.Repeat("x", maxLine+10)},
		"no pong":            {"ping", "\n"},
		"nothing":            {"end", `{"op":"end"}` + "\n"},
		"no time":            {"end", `{"op":"end","bytes":5,"seconds":0}` + "\n"},
		"less than none":     {"end", `{"op":"end","bytes":-5,"seconds":1}` + "\n"},
		"another type":       {"end", `{"op":"end","bytes":"many","seconds":1}` + "\n"},
		"too fast":           {"end", `{"op":"end","bytes":9223372036854775807,"seconds":1e-320}` + "\n"},
		"more than was sent": {"end", `{"op":"end","bytes":1000000000000,"seconds":1}` + "\n"},
	} {
		answers := map[string]string{}
		for k, v := range ok {
			answers[k] = v
		}
		answers[c.op] = c.answer
		if s, err := Measure(limited(t), request(lying(t, answers))); err == nil {
			t.Errorf("%s: believed %+v", name, s)
		}
	}
}

func TestUnknownTokenIsNotCounted(t *testing.T) {
	address := serving(t)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := writeLine(c, control{Op: "stream", Token: "not opened"}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the tester keeps a stream that nobody opened: %v", err)
	}
}

func TestTooManyConnections(t *testing.T) {
	address := serving(t)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range maxOpen + 1 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if i < maxOpen { // its answer says that it has its seat
			if _, err := ask(c, bufio.NewReader(c), control{Op: "open", Token: fmt.Sprint(i)}); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
	}
	if _, err := open[maxOpen].Read(make([]byte, 1)); err == nil {
		t.Error("one connection too many is served")
	}
	_ = open[0].Close()
	if _, err := Measure(limited(t), request(address)); err == nil {
		return
	}
	for _, c := range open {
		_ = c.Close()
	}
	for { // seats are given back
		if _, err := Measure(limited(t), request(address)); err == nil {
			return
		}
	}
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// addressed is a pipe with an address of a peer.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

func TestTesterEndsWhenNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		begin := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			if err := serve(t.Context(), l); err != nil {
				t.Error(err)
			}
			ended <- time.Since(begin)
		}()
		time.Sleep(9 * time.Minute)
		ours, theirs := net.Pipe()
		l.conns <- addressed{theirs}
		time.Sleep(9 * time.Minute)
		select {
		case at := <-ended:
			t.Fatalf("it ended after %s, although somebody connected at 9 minutes", at)
		default:
		}
		if at := <-ended; at != 19*time.Minute {
			t.Errorf("it ended after %s, want 10 minutes after the last connection at 9", at)
		}
		if _, err := ours.Read(make([]byte, 1)); err == nil {
			t.Error("its connection lives on")
		}
	})
}

func TestAcceptErrorEndsTheTester(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ended := make(chan error, 1)
		begin := time.Now()
		go func() { ended <- serve(t.Context(), l) }()
		_, theirs := net.Pipe()
		l.conns <- addressed{theirs}
		synctest.Wait()
		_ = l.Close()
		if err := <-ended; err == nil || time.Since(begin) > time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
	})
}

// FuzzHandle feeds a tester any bytes: it ends, and what it answers is lines of JSON.
func FuzzHandle(f *testing.F) {
	for _, s := range []string{
		"", "\n", "{}\n", `{"op":"open","token":"a"}` + "\n" + `{"op":"ping"}` + "\n" + `{"op":"end"}` + "\n",
		`{"op":"stream","token":"a"}` + "\nxxxxx", `{"op":"open"}` + "\n{\n", `{"op":1}` + "\n", strings.Repeat("x", 5000), `{"op":"open","bytes":1e999}` + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		tester := &tester{tokens: map[string]*meter{"a": {}}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer theirs.Close()
			tester.handle(addressed{theirs})
		}()
		var got bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&got, ours)
		}()
		_, _ = ours.Write(b)
		_ = ours.Close()
		<-done
		<-read
		for _, line := range bytes.Split(bytes.TrimSuffix(got.Bytes(), []byte("\n")), []byte("\n")) {
			if len(line) > 0 && !json.Valid(line) {
				t.Errorf("answered %q", line)
			}
		}
		for token := range tester.tokens {
			if token != "a" {
				t.Errorf("token %q is left", token)
			}
		}
	})
}

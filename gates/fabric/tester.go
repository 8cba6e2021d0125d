package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/route"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// MeasureRequest asks for one sample of an edge.
type MeasureRequest struct {
	From    string         `json:"from"`
	To      string         `json:"to"`
	Address string         `json:"address"`
	Streams int            `json:"streams"`
	For     fleet.Duration `json:"for"`
}

// Sample is one measured edge. Gbps counts what the receiver got, from its first byte
// to its last.
type Sample struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	Tool      string  `json:"tool"`
	Streams   int     `json:"streams"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
	Gbps      float64 `json:"gbps"`
	RTT       float64 `json:"rtt_us"` // the least of several round trips, microseconds
	RouteFrom string  `json:"route_from"`
	RouteTo   string  `json:"route_to"`
	MTUFrom   int     `json:"mtu_from"` // bytes
	MTUTo     int     `json:"mtu_to"`   // bytes
}

// Limits of the tester.
const (
	toolName   = "narwhal-tcp/1"
	maxStreams = 64
	maxLine    = 4 << 10
	chunk      = 256 << 10
	idleLimit  = 10 * time.Minute // a tester that nobody asks ends by itself
	maxOpen    = 4 * maxStreams   // connections at one time; more are closed at once
	maxRoute   = 128              // bytes kept of a route that the other end tells
	pings      = 20
	startLimit = 10 * time.Second // for a tester to listen
)

// control is one line of the control connection.
type control struct {
	Token   string  `json:"token,omitempty"`
	Streams int     `json:"streams,omitempty"`
	Op      string  `json:"op"` // open | ping | end | result | stream
	Bytes   int64   `json:"bytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Route   string  `json:"route,omitempty"`
	MTU     int     `json:"mtu,omitempty"`
}

// HostVerbs are what gate D asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{"fabric-measure": gates.Answer(Measure)}
}

// Serve receives until ctx ends or nobody has asked for ten minutes.
func Serve(ctx context.Context, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for fabric samples: %w", err)
	}
	return serve(ctx, l)
}

func serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // ends the connections that are waited for
	idle := time.AfterFunc(idleLimit, cancel)
	defer idle.Stop()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	t := &tester{tokens: map[string]*meter{}}
	seats := make(chan struct{}, maxOpen)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept a fabric connection: %w", err)
		}
		select {
		case seats <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		idle.Reset(idleLimit)
		wg.Go(func() {
			defer func() { <-seats }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			t.handle(c)
		})
	}
}

// tester holds the samples in progress by token.
type tester struct {
	mu     sync.Mutex
	tokens map[string]*meter
}

// meter counts what the streams of one sample received.
type meter struct {
	mu          sync.Mutex
	bytes       int64
	first, last time.Time
}

func (m *meter) add(n int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first.IsZero() {
		m.first = now
	}
	m.bytes += int64(n)
	m.last = now
}

func (t *tester) handle(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(idleLimit))
	r := bufio.NewReaderSize(c, maxLine)
	first, err := readLine(r)
	if err != nil {
		return
	}
	switch first.Op {
	case "open":
		t.control(c, r, first)
	case "stream":
		t.mu.Lock()
		m := t.tokens[first.Token]
		t.mu.Unlock()
		if m != nil {
			receive(r, c, m)
		}
	}
}

// receive counts bytes until the stream ends.
func receive(r *bufio.Reader, c net.Conn, m *meter) {
	if n := r.Buffered(); n > 0 {
		m.add(n, time.Now())
	}
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

func (t *tester) control(c net.Conn, r *bufio.Reader, open control) {
	m := &meter{}
	t.mu.Lock()
	t.tokens[open.Token] = m
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.tokens, open.Token)
		t.mu.Unlock()
	}()
	peer, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	iface, _ := route.Via(peer)
	if writeLine(c, control{Op: "open", Route: route.To(peer), MTU: route.MTU(iface)}) != nil {
		return
	}
	for {
		line, err := readLine(r)
		if err != nil {
			return
		}
		answer := control{Op: line.Op}
		if line.Op == "end" {
			m.mu.Lock()
			answer.Bytes, answer.Seconds = m.bytes, m.last.Sub(m.first).Seconds()
			m.mu.Unlock()
		}
		if writeLine(c, answer) != nil || line.Op == "end" {
			return
		}
	}
}

func readLine(r *bufio.Reader) (control, error) {
	b, err := r.ReadSlice('\n')
	if err != nil {
		return control{}, fmt.Errorf("read from the fabric tester: %w", err)
	}
	var c control
	if err := json.Unmarshal(b, &c); err != nil {
		return control{}, fmt.Errorf("read from the fabric tester: %w", err)
	}
	return c, nil
}

func writeLine(w io.Writer, c control) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Measure takes one sample of an edge from the source's end.
func Measure(ctx context.Context, q MeasureRequest) (Sample, error) {
	host, _, err := net.SplitHostPort(q.Address)
	if err != nil || q.Streams < 1 || q.Streams > maxStreams || q.For <= 0 {
		return Sample{}, fmt.Errorf("measure %s → %s: want an address, 1 to %d streams and a length", q.From, q.To, maxStreams)
	}
	iface, _ := route.Via(host)
	s := Sample{From: q.From, To: q.To, Tool: toolName, Streams: q.Streams, RouteFrom: route.To(host), MTUFrom: route.MTU(iface)}
	c, err := reach(ctx, q.Address)
	if err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(q.For.D() + time.Minute))
	r := bufio.NewReaderSize(c, maxLine)
	token := fmt.Sprintf("%s-%s-%d", q.From, q.To, time.Now().UnixNano())
	open, err := ask(c, r, control{Op: "open", Token: token, Streams: q.Streams})
	if err != nil {
		return s, err
	}
	s.RouteTo, s.MTUTo = engine.Printable(strings.TrimSpace(open.Route), maxRoute), open.MTU
	if s.RTT, err = roundTrip(c, r); err != nil {
		return s, err
	}
	sent, err := send(ctx, q, token)
	if err != nil {
		return s, fmt.Errorf("measure %s → %s: %w", q.From, q.To, err)
	}
	end, err := ask(c, r, control{Op: "end"})
	if err != nil {
		return s, err
	}
	s.Bytes, s.Seconds = end.Bytes, end.Seconds
	s.Gbps = 8 * float64(end.Bytes) / end.Seconds / 1e9
	switch {
	case end.Seconds <= 0 || end.Bytes <= 0:
		return s, fmt.Errorf("measure %s → %s: nothing arrived", q.From, q.To)
	case end.Bytes > sent || math.IsInf(s.Gbps, 0):
		return s, fmt.Errorf("measure %s → %s: the tester counts %d bytes in %g s, %d were sent", q.From, q.To, end.Bytes, end.Seconds, sent)
	}
	return s, nil
}

// reach connects, and waits a little for a tester that has just been started.
func reach(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

func ask(c net.Conn, r *bufio.Reader, line control) (control, error) {
	if err := writeLine(c, line); err != nil {
		return control{}, fmt.Errorf("write to the fabric tester: %w", err)
	}
	return readLine(r)
}

// roundTrip returns the least of several pings in microseconds.
func roundTrip(c net.Conn, r *bufio.Reader) (float64, error) {
	least := time.Hour
	for range pings {
		begin := time.Now()
		if _, err := ask(c, r, control{Op: "ping"}); err != nil {
			return 0, err
		}
		least = min(least, time.Since(begin))
	}
	return float64(least.Nanoseconds()) / 1e3, nil
}

// send fills all streams for the asked time and returns how many bytes went out.
func send(ctx context.Context, q MeasureRequest, token string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, q.For.D())
	defer cancel()
	var g errgroup.Group
	var sent atomic.Int64
	for range q.Streams {
		g.Go(func() error {
			c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(context.WithoutCancel(ctx), "tcp", q.Address)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := writeLine(c, control{Op: "stream", Token: token}); err != nil {
				return err
			}
			buf := make([]byte, chunk)
			deadline, _ := ctx.Deadline()
			_ = c.SetWriteDeadline(deadline)
			for ctx.Err() == nil {
				n, err := c.Write(buf)
				sent.Add(int64(n))
				if err != nil {
					var timeout net.Error
					if errors.As(err, &timeout) && timeout.Timeout() {
						return nil
					}
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return sent.Load(), err
}

// cutRoute splits "interface source".
func cutRoute(r string) (iface, src string, ok bool) { return strings.Cut(r, " ") }

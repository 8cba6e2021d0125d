package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/route"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Serve answers samples until ctx ends or nobody has asked for ten minutes. tools is a JSON
// object of the servers of other tools that it may start, by name; "" = none.
func Serve(ctx context.Context, address, tools string) error {
	servers := map[string][]string{}
	if tools != "" {
		if err := json.Unmarshal([]byte(tools), &servers); err != nil {
			return fmt.Errorf("read the tools of the fabric tester: %w", err)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for fabric samples: %w", err)
	}
	d, err := listenDatagrams(address)
	if err != nil {
		_ = l.Close()
		return err
	}
	return serve(ctx, l, d, servers)
}

// tester holds the sessions in progress.
type tester struct {
	datagrams *datagrams
	tools     map[string][]string
	sys       string // root of sysfs
	asked     func() // somebody asks: the tester stays
	mu        sync.Mutex
	sessions  map[string]*session
}

func serve(ctx context.Context, l net.Listener, d *datagrams, tools map[string][]string) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // ends the connections that are waited for
	idle := time.AfterFunc(idleLimit, cancel)
	defer idle.Stop()
	context.AfterFunc(ctx, func() { _ = l.Close() })
	if d != nil {
		context.AfterFunc(ctx, func() { _ = d.conn.Close() })
		wg.Go(d.serve)
	}
	t := &tester{datagrams: d, tools: tools, sys: "/sys", asked: func() { idle.Reset(idleLimit) }, sessions: map[string]*session{}}
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
		t.asked()
		wg.Go(func() {
			defer func() { <-seats }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { abandon(c) })()
			t.handle(ctx, c)
		})
	}
}

func (t *tester) handle(ctx context.Context, c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(idleLimit))
	r := bufio.NewReaderSize(c, maxLine)
	first, err := readLine(r)
	if err != nil {
		return
	}
	if first.Op == "open" {
		t.open(ctx, c, r, first)
		return
	}
	t.mu.Lock()
	s := t.sessions[first.Token]
	t.mu.Unlock()
	if s == nil {
		return
	}
	switch first.Op {
	case "stream", "pull":
		s.join(c, first)
	case "curve":
		if writeLine(c, control{Op: first.Op}) == nil {
			answerMessages(c, r)
		}
	}
}

// open is a session from its first line to its end.
func (t *tester) open(ctx context.Context, c net.Conn, r *bufio.Reader, first control) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{ctx: ctx, tester: t}
	if err := t.enter(first.Token, s); err != nil {
		_ = writeLine(c, control{Op: first.Op, Error: err.Error()})
		return
	}
	defer s.leave(first.Token)
	peer, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	end := endTowards(t.sys, peer)
	end.Seen = peer
	s.iface, _ = route.Via(peer)
	if writeLine(c, control{Op: "open", End: &end}) != nil {
		return
	}
	for {
		line, err := readLine(r)
		if err != nil {
			return
		}
		t.asked()
		_ = c.SetDeadline(time.Now().Add(idleLimit))
		answer, err := s.answer(line)
		answer.Op = line.Op
		if err != nil {
			answer.Error = err.Error()
		}
		if writeLine(c, answer) != nil {
			return
		}
	}
}

func (t *tester) enter(token string, s *session) error {
	if len(token) != 2*tokenBytes {
		return errors.New("a token is 32 hex digits")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[token] != nil || len(t.sessions) >= maxSessions {
		return errors.New("the token is in use, or too many are")
	}
	if t.datagrams != nil {
		p, err := t.datagrams.session(token)
		if err != nil {
			return err
		}
		s.probe = p
	}
	t.sessions[token] = s
	return nil
}

func (s *session) leave(token string) {
	s.finish()
	if s.stop != nil {
		s.stop()
	}
	if s.probe != nil {
		s.probe.leave()
	}
	s.tester.mu.Lock()
	defer s.tester.mu.Unlock()
	delete(s.tester.sessions, token)
}

// endTowards is how this host sees another.
func endTowards(sys, peer string) End {
	w := route.Towards(sys, peer)
	return End{Route: w.Route, Gateway: w.Gateway, MTU: w.MTU, SpeedMbps: w.SpeedMbps}
}

// clean makes an end that another machine told fit to be recorded.
func (e End) clean() End {
	e.Route, e.Gateway, e.Seen = printable(e.Route, maxRoute), printable(e.Gateway, maxRoute), printable(e.Seen, maxRoute)
	e.MTU, e.SpeedMbps = min(max(e.MTU, 0), 1<<20), max(e.SpeedMbps, 0)
	return e
}

func printable(s string, limit int) string { return engine.Printable(s, limit) }

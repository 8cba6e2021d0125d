package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// session is one asker's part of a tester. Its control connection owns it.
type session struct {
	ctx    context.Context
	tester *tester
	probe  *probe // nil where no datagrams are taken
	iface  string // towards the asker

	mu    sync.Mutex
	phase *phase
	stop  func() // ends the server of another tool
}

// phase is one transfer.
type phase struct {
	id      int
	want    int // streams and pulls together
	skip    time.Duration
	length  time.Duration
	meter   meter
	begun   chan struct{} // closed by "go"
	until   time.Time     // set before begun is closed
	sending sync.WaitGroup

	mu     sync.Mutex
	joined int
	conns  []net.Conn
	sent   tally
}

// answer does what one line asks. Only the control connection calls it.
func (s *session) answer(line control) (control, error) {
	switch line.Op {
	case "ping":
		return control{}, nil
	case "phase":
		return control{}, s.prepare(line)
	case "go":
		return control{}, s.begin(line.Phase)
	case "end":
		return s.end(line.Phase)
	case "counters":
		return control{Counters: counters(s.tester.sys, s.iface)}, nil
	case "tool":
		absent, err := s.tool(line.Tool)
		return control{Absent: absent}, err
	case "mtu", "train", "count", "got":
		return s.datagram(line)
	}
	return control{}, fmt.Errorf("no operation %q", printable(line.Op, 32))
}

func (s *session) prepare(line control) error {
	n := line.Streams + line.Pulls
	if line.Streams < 0 || line.Pulls < 0 || n < 1 || n > 2*maxStreams || line.For <= 0 || line.For > maxPhase || line.Skip < 0 || line.Skip >= line.For {
		return fmt.Errorf("a transfer has 1 to %d streams and a length to %s", 2*maxStreams, maxPhase)
	}
	s.finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = &phase{id: line.Phase, want: n, skip: line.Skip, length: line.For, begun: make(chan struct{})}
	return nil
}

func (s *session) current(id int) *phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == nil || s.phase.id != id {
		return nil
	}
	return s.phase
}

// join carries one connection of a transfer until it ends.
func (s *session) join(c net.Conn, first control) {
	p := s.current(first.Phase)
	if p == nil || !p.enter(c, first.Op == "pull") {
		return
	}
	defer abandon(c)
	if first.Op == "pull" {
		defer p.sending.Done()
	}
	if writeLine(c, control{Op: first.Op}) != nil {
		return
	}
	if first.Op == "stream" {
		drain(c, &p.meter)
		return
	}
	select {
	case <-p.begun:
	case <-s.ctx.Done():
		return
	}
	sent := fill(c, p.until)
	p.mu.Lock()
	p.sent.add(sent)
	p.mu.Unlock()
}

// enter takes a connection in unless all seats are taken or the transfer has begun.
func (p *phase) enter(c net.Conn, sends bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.begun:
		return false
	default:
	}
	if p.joined >= p.want {
		return false
	}
	p.joined++
	p.conns = append(p.conns, c)
	if sends {
		p.sending.Add(1)
	}
	return true
}

func (s *session) begin(id int) error {
	p := s.current(id)
	if p == nil {
		return errors.New("no such transfer")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.joined != p.want {
		return fmt.Errorf("%d of %d streams are there", p.joined, p.want)
	}
	select {
	case <-p.begun:
		return errors.New("the transfer has begun")
	default:
	}
	now := time.Now()
	p.meter.open(now, p.skip, p.length)
	p.until = now.Add(p.length)
	close(p.begun)
	return nil
}

// end waits for this end's senders and tells what was counted.
func (s *session) end(id int) (control, error) {
	p := s.current(id)
	if p == nil {
		return control{}, errors.New("no such transfer")
	}
	select {
	case <-p.begun:
	default:
		return control{}, errors.New("the transfer has not begun")
	}
	if rest := time.Until(p.until); rest > 0 { // the asker's clock runs a little ahead
		select {
		case <-time.After(rest):
		case <-s.ctx.Done():
		}
	}
	p.sending.Wait()
	n, window := p.meter.read()
	p.mu.Lock()
	answer := control{Counted: &counted{Bytes: n, Window: window, Sent: p.sent, Streams: p.joined}}
	p.mu.Unlock()
	s.finish()
	return answer, nil
}

// finish drops what is left of the transfer.
func (s *session) finish() {
	s.mu.Lock()
	p := s.phase
	s.phase = nil
	s.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		abandon(c)
	}
}

// datagram does what concerns single datagrams.
func (s *session) datagram(line control) (control, error) {
	if s.probe == nil {
		return control{}, errors.New("datagrams are not taken here")
	}
	switch line.Op {
	case "count":
		s.probe.begin()
		return control{}, nil
	case "got":
		got, over := s.probe.arrived()
		return control{Count: got, Overrun: over}, nil
	}
	select {
	case <-s.probe.met:
	default:
		return control{}, nil // none came from the asker, so where it listens is unknown
	}
	ctx, cancel := context.WithTimeout(s.ctx, maxPhase)
	defer cancel()
	if line.Op == "mtu" {
		return control{Count: s.probe.largest(ctx, line.Count, min(max(line.Pace, 0), time.Second))}, nil
	}
	if line.Count < 1 || line.Count > maxTrain || line.Phase < 0 || line.Phase+line.Count > maxTrain || line.Pace > time.Second {
		return control{}, fmt.Errorf("a train has 1 to %d datagrams", maxTrain)
	}
	return control{Count: s.probe.train(ctx, line.Phase, line.Count, line.Pace)}, nil
}

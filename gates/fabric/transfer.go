package fabric

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// transfer fills the link for a time and returns what the tester's end and this end
// counted. forward and back are streams to the tester and from it.
func (m *measuring) transfer(ctx context.Context, forward, back int, length time.Duration) (there, here counted, err error) {
	t, err := m.ready(ctx, forward, back, length)
	if err != nil {
		return there, here, err
	}
	defer t.drop()
	if _, err := m.ask(control{Op: "go", Phase: t.id}); err != nil {
		return there, here, err
	}
	here = t.run()
	there, err = m.finish(t.id)
	if err == nil && there.Bytes > here.Sent.Bytes {
		err = fmt.Errorf("the tester counts %d bytes, %d were sent", there.Bytes, here.Sent.Bytes)
	}
	return there, here, err
}

// running is this end of a transfer.
type running struct {
	id           int
	length, skip time.Duration
	out, in      []net.Conn
	meter        meter
}

// skipped is the part of a transfer in which its streams gather speed.
func skipped(length time.Duration) time.Duration { return length / 4 }

// ready makes a transfer: all its connections are there.
func (m *measuring) ready(ctx context.Context, forward, back int, length time.Duration) (*running, error) {
	m.phases++
	t := &running{id: m.phases, length: length, skip: skipped(length)}
	if _, err := m.ask(control{Op: "phase", Phase: t.id, Streams: forward, Pulls: back, Skip: t.skip, For: length}); err != nil {
		return nil, err
	}
	var g errgroup.Group
	var mu sync.Mutex
	for i := range forward + back {
		g.Go(func() error {
			op, to := "stream", &t.out
			if i >= forward {
				op, to = "pull", &t.in
			}
			c, _, err := m.attach(ctx, control{Op: op, Token: m.token, Phase: t.id})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			*to = append(*to, c)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.drop()
		return nil, err
	}
	return t, nil
}

// run sends and receives until the time is over.
func (t *running) run() counted {
	begin := time.Now()
	until := begin.Add(t.length)
	t.meter.open(begin, t.skip, t.length)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sent tally
	for _, c := range t.out {
		wg.Go(func() {
			s := fill(c, until)
			mu.Lock()
			defer mu.Unlock()
			sent.add(s)
		})
	}
	for _, c := range t.in {
		_ = c.SetReadDeadline(until)
		wg.Go(func() { drain(c, &t.meter) })
	}
	wg.Wait()
	n, window := t.meter.read()
	return counted{Bytes: n, Window: window, Sent: sent}
}

func (t *running) drop() {
	for _, c := range append(t.out, t.in...) {
		abandon(c)
	}
}

// finish ends a transfer at the tester and checks what it tells.
func (m *measuring) finish(id int) (counted, error) {
	answer, err := m.ask(control{Op: "end", Phase: id})
	if err != nil {
		return counted{}, err
	}
	c := answer.Counted
	if c == nil || c.Bytes < 0 || c.Window <= 0 || c.Window > maxPhase || c.Sent.Bytes < 0 || c.Sent.Segments < 0 || c.Sent.Retransmits < 0 {
		return counted{}, fmt.Errorf("read from the fabric tester: its count makes no sense")
	}
	return *c, nil
}

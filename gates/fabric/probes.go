package fabric

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// ours is the asker's socket for datagrams.
type ours struct {
	d  *datagrams
	p  *probe
	wg sync.WaitGroup
}

// datagrams opens a socket beside the control connection and tells the tester of it.
func (m *measuring) datagrams() (*ours, error) {
	local, _, err := net.SplitHostPort(m.c.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	d, err := listenDatagrams(net.JoinHostPort(local, "0"))
	if err != nil {
		return nil, err
	}
	u := &ours{d: d}
	u.wg.Go(d.serve)
	to, err := net.ResolveUDPAddr("udp", m.c.RemoteAddr().String())
	if err == nil {
		u.p, err = d.session(m.token)
	}
	if err != nil {
		u.close()
		return nil, err
	}
	at := to.AddrPort()
	u.p.meet(at)
	for range sizeTries { // one of them arrives
		_ = d.send(packDatagram(kindHello, u.p.token, 0, nil), at)
	}
	return u, nil
}

func (u *ours) close() {
	_ = u.d.conn.Close()
	u.wg.Wait()
}

// sizes finds the largest datagram each way.
func (m *measuring) sizes(ctx context.Context, u *ours, p *Pair) error {
	p.Forward.PathMTU = u.p.largest(ctx, p.EndA.MTU, m.rtt)
	answer, err := m.ask(control{Op: "mtu", Count: p.EndB.MTU, Pace: m.rtt})
	if err != nil {
		return err
	}
	if answer.Count < 0 || answer.Count > mostMTU {
		return fmt.Errorf("read from the fabric tester: a datagram of %d bytes", answer.Count)
	}
	p.Back.PathMTU = answer.Count
	return nil
}

const (
	trainLength = 1000
	mostTrains  = 4
	// trainShare is the part of the measured rate, one in so many, that a train takes at most.
	trainShare = 5
	// settle lets queues run empty after the last transfer, calm at most: a ping as fast as
	// those before tells that they are.
	settle = 20 * time.Millisecond
	calm   = 500 * time.Millisecond
	// lateLooks are made for datagrams that have not come, a settle apart.
	lateLooks = 8
)

// trains sends single datagrams over the idle link each way at once, two trains, and two
// more where few were lost: a chance is not a fault.
func (m *measuring) trains(ctx context.Context, u *ours, p *Pair, whole time.Duration) error {
	length := trainLength
	if whole < time.Second {
		length = trainLength / 5
	}
	if p.Forward.PathMTU < trainBytes || p.Back.PathMTU < trainBytes {
		return nil // found already
	}
	if _, err := m.ask(control{Op: "count"}); err != nil {
		return err
	}
	u.p.begin()
	if err := m.quiet(); err != nil {
		return err
	}
	for i := range mostTrains {
		if i >= 2 && !few(p.Forward) && !few(p.Back) {
			break
		}
		if err := m.train(ctx, u, p, i*length, length); err != nil {
			return err
		}
	}
	return nil
}

// quiet waits for the queues of the way to run empty, both ways: those of a slow link hold
// what was sent for longer than a fixed pause, and a train would meet them full.
func (m *measuring) quiet() error {
	time.Sleep(settle)
	for begin := time.Now(); time.Since(begin) < calm; {
		at := time.Now()
		if _, err := m.ask(control{Op: "ping"}); err != nil {
			return err
		}
		if time.Since(at) <= 2*m.rtt+time.Millisecond {
			return nil
		}
	}
	return nil
}

// few tells of losses that may be a chance, or that this host's own may hide.
func few(d Direction) bool { return d.Lost() < leastLost && d.Lost()+d.Overrun > 0 }

// train sends one train each way and reads the counts, which are of all trains together: what
// comes late is not lost.
func (m *measuring) train(ctx context.Context, u *ours, p *Pair, first, count int) error {
	left := make(chan int, 1)
	go func() { left <- u.p.train(ctx, first, count, pace(p.Forward)) }()
	answer, err := m.ask(control{Op: "train", Phase: first, Count: count, Pace: pace(p.Back)})
	mine := <-left
	if err != nil {
		return err
	}
	if answer.Count < 0 || answer.Count > count {
		return fmt.Errorf("read from the fabric tester: it sends %d of %d datagrams", answer.Count, count)
	}
	p.Forward.Datagrams += mine
	p.Back.Datagrams += answer.Count
	time.Sleep(2 * m.rtt)
	for range lateLooks { // the last are on their way, and their readers may be busy
		time.Sleep(settle)
		theirs, err := m.ask(control{Op: "got"})
		if err != nil {
			return err
		}
		if theirs.Count < 0 || theirs.Count > p.Forward.Datagrams || theirs.Overrun < 0 {
			return fmt.Errorf("read from the fabric tester: it counts %d of %d datagrams", theirs.Count, p.Forward.Datagrams)
		}
		got, over := u.p.arrived()
		p.Forward.Arrived, p.Forward.Overrun = theirs.Count, theirs.Overrun
		p.Back.Arrived, p.Back.Overrun = min(got, p.Back.Datagrams), over
		if p.Forward.Lost() == 0 && p.Back.Lost() == 0 {
			break
		}
	}
	return nil
}

// pace is the time of four datagrams of a train.
func pace(d Direction) time.Duration {
	p := time.Millisecond
	if d.AloneGbps > 0 {
		p = max(p, time.Duration(4*8*trainBytes*trainShare/d.AloneGbps)) // bits ÷ Gbit/s = ns
	}
	return min(p, 50*time.Millisecond)
}

package fabric

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// way is what an impairing proxy does to what goes one way. Zero values impair nothing.
type way struct {
	mbit    float64       // rate of all that goes this way
	loss    float64       // share of datagrams that vanish
	delay   time.Duration // of everything
	jitter  time.Duration // more or less of the delay, evenly; nothing overtakes
	largest int           // bytes of a datagram with its headers; larger ones vanish
}

const (
	proxyChunk = 16 << 10
	// proxyQueue is how long a datagram may wait for its turn before it is dropped, and
	// proxyCredit how much of its rate a way that was kept from running makes up for.
	proxyQueue  = 25 * time.Millisecond
	proxyCredit = 10 * time.Millisecond
	proxyHeads  = 28 // bytes of IPv4 and UDP
)

// lane is one way of a proxy: a rate, a loss and a delay shared by all connections.
type lane struct {
	way
	mu   sync.Mutex
	next time.Time // when the lane is free
	last time.Time // when the latest piece arrives
	dice *rand.Rand
}

// due takes a turn for n bytes and tells when it is, and when the bytes arrive at the other end.
// A datagram that would wait too long, that is too large, or that is lost has none.
func (l *lane) due(n int, datagram bool) (turn, arrives time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if datagram && (l.largest > 0 && n+proxyHeads > l.largest || l.dice.Float64() < l.loss) {
		return now, now, false
	}
	if at := now.Add(-proxyCredit); l.next.Before(at) {
		l.next = at
	}
	if datagram && l.next.Sub(now) > proxyQueue {
		return now, now, false
	}
	if l.mbit > 0 {
		l.next = l.next.Add(time.Duration(8 * float64(n) / l.mbit * 1e3))
	}
	turn = l.next
	arrives = turn.Add(l.delay)
	if l.jitter > 0 {
		arrives = arrives.Add(time.Duration((2*l.dice.Float64() - 1) * float64(l.jitter)))
	}
	if arrives.Before(l.last) {
		arrives = l.last
	}
	l.last = arrives
	return turn, arrives, true
}

// proxy forwards TCP and UDP of one port to a tester, each way impaired.
type proxy struct {
	t        *testing.T
	target   string
	out, in  *lane // to the tester, from it
	listener net.Listener
	datagram *net.UDPConn
	done     chan struct{}
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[io.Closer]bool
	clients  map[netip.AddrPort]*net.UDPConn
}

// impairing starts a proxy in front of a tester; it ends with the test.
func impairing(t *testing.T, target string, out, in way) *proxy {
	t.Helper()
	p := &proxy{t: t, target: target, out: &lane{way: out, dice: rand.New(rand.NewPCG(1, rand.Uint64()))}, in: &lane{way: in, dice: rand.New(rand.NewPCG(2, rand.Uint64()))},
		done: make(chan struct{}), open: map[io.Closer]bool{}, clients: map[netip.AddrPort]*net.UDPConn{}}
	for range 20 { // the TCP port may be taken for UDP
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if p.datagram, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(l.Addr().String()))); err == nil {
			p.listener = l
			break
		}
		_ = l.Close()
	}
	if p.listener == nil {
		t.Fatal("no port is free for TCP and UDP")
	}
	_ = p.datagram.SetReadBuffer(4 << 20)
	p.keep(p.listener)
	p.keep(p.datagram)
	p.wg.Go(p.accept)
	p.wg.Go(p.receive)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	close(p.done)
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// keep closes what is open when the proxy ends; false when it has ended.
func (p *proxy) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = c.Close()
		return false
	default:
	}
	p.open[c] = true
	return true
}

func (p *proxy) forget(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.carry(c) })
	}
}

// carry is one TCP connection; when an end of it ends, both do.
func (p *proxy) carry(c net.Conn) {
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		abandon(c)
		return
	}
	if !p.keep(c) || !p.keep(to) {
		_ = c.Close()
		_ = to.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, to, p.out) })
	both.Go(func() { p.pump(to, c, p.in) })
	both.Wait()
	p.forget(c)
	p.forget(to)
}

type piece struct {
	b  []byte
	at time.Time
}

// pump reads at the lane's rate and writes what has arrived.
func (p *proxy) pump(from, to net.Conn, l *lane) {
	way := make(chan piece, 256)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer abandon(to)
		for b := range way {
			if !p.until(b.at) {
				break
			}
			if _, err := to.Write(b.b); err != nil {
				break
			}
		}
		abandon(from)
		for range way { // so that the reader ends
		}
	})
	for {
		b := make([]byte, proxyChunk)
		n, err := from.Read(b)
		if n > 0 {
			turn, arrives, _ := l.due(n, false)
			if !p.until(turn) {
				break
			}
			way <- piece{b[:n], arrives}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writer.Wait()
}

// until waits; false when the proxy ends.
func (p *proxy) until(at time.Time) bool {
	rest := time.Until(at)
	if rest <= 0 {
		return true
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done:
		return false
	}
}

// receive takes datagrams of askers and gives each asker a socket towards the tester.
func (p *proxy) receive() {
	deliver := p.deliveries()
	defer close(deliver)
	b := make([]byte, 1<<16)
	for {
		n, from, err := p.datagram.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		to := p.client(from)
		if to == nil {
			return
		}
		if _, arrives, ok := p.out.due(n, true); ok {
			body := append([]byte(nil), b[:n]...)
			deliver <- delivery{arrives, func() { _, _ = to.Write(body) }}
		}
	}
}

type delivery struct {
	at time.Time
	do func()
}

// deliveries hands datagrams over at their time, in order; the caller closes it.
func (p *proxy) deliveries() chan delivery {
	c := make(chan delivery, 8192)
	p.wg.Go(func() {
		for d := range c {
			if p.until(d.at) {
				d.do()
			}
		}
	})
	return c
}

func (p *proxy) client(from netip.AddrPort) *net.UDPConn {
	if c := p.clients[from]; c != nil {
		return c
	}
	at, err := net.ResolveUDPAddr("udp", p.target)
	if err != nil {
		return nil
	}
	c, err := net.DialUDP("udp", nil, at)
	if err != nil || !p.keep(c) {
		return nil
	}
	_ = c.SetReadBuffer(4 << 20)
	p.clients[from] = c
	p.wg.Go(func() {
		deliver := p.deliveries()
		defer close(deliver)
		b := make([]byte, 1<<16)
		for {
			n, err := c.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			if _, arrives, ok := p.in.due(n, true); ok {
				body := append([]byte(nil), b[:n]...)
				deliver <- delivery{arrives, func() { _, _ = p.datagram.WriteToUDPAddrPort(body, from) }}
			}
		}
	})
	return c
}

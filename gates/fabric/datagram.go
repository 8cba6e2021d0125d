package fabric

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Datagrams carry a mark, a kind, the session's token and a number. What does not hold a
// token that is expected is thrown away.
const (
	datagramMark = "nwfb"
	datagramHead = len(datagramMark) + 1 + tokenBytes + 4

	kindHello = 1 // tells where the asker listens
	kindSize  = 2 // asks for an echo
	kindEcho  = 3 // names the size that came
	kindTrain = 4 // is counted

	trainBytes = 1200
)

// datagrams is one UDP socket, shared by sessions.
type datagrams struct {
	conn *net.UDPConn
	v6   bool
	mu   sync.Mutex
	by   map[[tokenBytes]byte]*probe
	// overrun is the kernel's count of datagrams that did not fit the socket's buffer.
	overrun uint32
}

// probe is one session's part of a socket.
type probe struct {
	d     *datagrams
	token [tokenBytes]byte

	mu    sync.Mutex
	peer  netip.AddrPort
	met   chan struct{} // closed once the peer is known
	next  uint32        // number of the next size probe
	echo  chan [2]uint32
	got   map[uint32]bool
	since uint32 // overrun when the train was begun
	shed  int64  // what the kernel had thrown away by then
}

func listenDatagrams(address string) (*datagrams, error) {
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for datagrams: %w", err)
	}
	c, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for datagrams: %w", err)
	}
	_ = c.SetReadBuffer(4 << 20)
	d := &datagrams{conn: c, by: map[[tokenBytes]byte]*probe{}}
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
		d.v6 = a.IP.To4() == nil
	}
	if err := neverFragment(c, d.v6); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("listen for datagrams: %w", err)
	}
	return d, nil
}

// session enters a token; the caller leaves.
func (d *datagrams) session(token string) (*probe, error) {
	p := &probe{d: d, met: make(chan struct{}), echo: make(chan [2]uint32, 4*sweepSizes), got: map[uint32]bool{}}
	if n, err := hex.Decode(p.token[:], []byte(token)); err != nil || n != tokenBytes {
		return nil, errors.New("a token is 32 hex digits")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.by[p.token]; taken || len(d.by) >= maxSessions {
		return nil, errors.New("the token is in use, or too many are")
	}
	d.by[p.token] = p
	return p, nil
}

func (p *probe) leave() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	delete(p.d.by, p.token)
}

// serve reads until the socket is closed.
func (d *datagrams) serve() {
	buf, oob := make([]byte, 1<<16), make([]byte, 128)
	for {
		n, on, _, from, err := d.conn.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one datagram, as an ICMP error
		}
		if over, ok := overrunOf(oob[:on]); ok {
			d.mu.Lock()
			d.overrun = over
			d.mu.Unlock()
		}
		d.take(buf[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
	}
}

// take handles one datagram of anybody.
func (d *datagrams) take(b []byte, from netip.AddrPort) {
	kind, token, number, ok := parseDatagram(b)
	if !ok {
		return
	}
	d.mu.Lock()
	p := d.by[token]
	d.mu.Unlock()
	if p == nil {
		return
	}
	switch kind {
	case kindHello:
		p.meet(from)
	case kindSize:
		p.meet(from)
		body := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
		_ = d.send(packDatagram(kindEcho, token, number, body), from)
	case kindEcho:
		if len(b) == datagramHead+4 {
			select {
			case p.echo <- [2]uint32{number, binary.BigEndian.Uint32(b[datagramHead:])}:
			default:
			}
		}
	case kindTrain:
		p.mu.Lock()
		if number < maxTrain {
			p.got[number] = true
		}
		p.mu.Unlock()
	}
}

// meet remembers where the other end listens, once.
func (p *probe) meet(from netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.peer.IsValid() {
		p.peer = from
		close(p.met)
	}
}

func parseDatagram(b []byte) (kind byte, token [tokenBytes]byte, number uint32, ok bool) {
	if len(b) < datagramHead || string(b[:len(datagramMark)]) != datagramMark {
		return 0, token, 0, false
	}
	kind = b[len(datagramMark)]
	copy(token[:], b[len(datagramMark)+1:])
	return kind, token, binary.BigEndian.Uint32(b[datagramHead-4:]), true
}

func packDatagram(kind byte, token [tokenBytes]byte, number uint32, body []byte) []byte {
	b := append(make([]byte, 0, datagramHead+len(body)), datagramMark...)
	b = append(b, kind)
	b = append(b, token[:]...)
	b = binary.BigEndian.AppendUint32(b, number)
	return append(b, body...)
}

func (d *datagrams) send(b []byte, to netip.AddrPort) error {
	_, err := d.conn.WriteToUDPAddrPort(b, to)
	return err
}

// headers are the bytes of IP and UDP before the payload.
func (d *datagrams) headers() int {
	if d.v6 {
		return 48
	}
	return 28
}

const (
	leastMTU = 576
	mostMTU  = 65535
)

// sweepSizes are sent at once: each round narrows the search to a part of so many.
const sweepSizes = 16

// largest returns the size, in bytes with all headers, of the largest datagram that reaches
// the other end unfragmented, at most limit; 0 when none does.
func (p *probe) largest(ctx context.Context, limit int, rtt time.Duration) int {
	limit = min(max(limit, leastMTU), mostMTU)
	wait := 20*time.Millisecond + 4*rtt
	if p.sweep(ctx, []int{limit}, wait) == limit {
		return limit
	}
	got := p.narrow(ctx, limit, wait)
	if p.sweep(ctx, []int{limit}, patience) == limit { // the other end was only busy
		return limit
	}
	return got
}

// patience is the first wait for the answer that clears a link of a fault.
const patience = 80 * time.Millisecond

// narrow searches below a limit that does not pass.
func (p *probe) narrow(ctx context.Context, limit int, wait time.Duration) int {
	lo, hi := 0, limit // lo passes or is 0, hi does not
	for sizes := []int{leastMTU, min(1500, limit-1)}; len(sizes) > 0 && ctx.Err() == nil; {
		got := p.sweep(ctx, sizes, wait)
		if got == 0 && lo == 0 {
			return 0
		}
		lo = max(lo, got)
		for _, s := range sizes {
			if s > lo {
				hi = min(hi, s)
			}
		}
		sizes = between(lo, hi)
	}
	return lo
}

// between spreads sizes over those that are left.
func between(lo, hi int) []int {
	var out []int
	for i := 1; i <= sweepSizes; i++ {
		if s := lo + (hi-lo)*i/(sweepSizes+1); s > lo && s < hi && (len(out) == 0 || s > out[len(out)-1]) {
			out = append(out, s)
		}
	}
	if len(out) == 0 && hi-lo > 1 {
		out = []int{lo + 1}
	}
	return out
}

const sizeTries = 3

// sweep sends sizes a few times and returns the largest of which an echo tells, 0 for none.
func (p *probe) sweep(ctx context.Context, sizes []int, wait time.Duration) int {
	asked, best := map[uint32]int{}, 0
	for range sizeTries {
		p.mu.Lock()
		peer := p.peer
		p.mu.Unlock()
		waiting := 0
		for _, size := range sizes {
			if size <= best {
				continue
			}
			p.mu.Lock()
			p.next++
			number := p.next
			p.mu.Unlock()
			b := packDatagram(kindSize, p.token, number, make([]byte, size-p.d.headers()-datagramHead))
			if p.d.send(b, peer) == nil { // else it is larger than the interface lets go
				asked[number] = size
				waiting++
			}
		}
		if waiting == 0 {
			break
		}
		best = max(best, p.echoed(ctx, asked, slices.Max(sizes), wait))
		wait *= 2
	}
	return best
}

// echoed takes echoes until the most comes or the time is over, and returns the largest.
func (p *probe) echoed(ctx context.Context, asked map[uint32]int, most int, wait time.Duration) (best int) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for best < most {
		select {
		case e := <-p.echo:
			if size, mine := asked[e[0]]; mine && int(e[1]) == size-p.d.headers() {
				best = max(best, size)
			}
		case <-t.C:
			return best
		case <-ctx.Done():
			return best
		}
	}
	return best
}

// train sends count datagrams, four a pace, and returns how many left.
func (p *probe) train(ctx context.Context, first, count int, pace time.Duration) int {
	p.mu.Lock()
	peer := p.peer
	p.mu.Unlock()
	body := make([]byte, trainBytes-datagramHead)
	tick := time.NewTicker(max(pace, time.Millisecond))
	defer tick.Stop()
	sent := 0
	for i := range count {
		if i%4 == 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return sent
			}
		}
		if p.d.send(packDatagram(kindTrain, p.token, uint32(first+i), body), peer) == nil {
			sent++
		}
	}
	return sent
}

// begin counts from nothing; arrived tells what came since, and what this end threw away: at
// most that, since the kernel's count is of all that the host takes in.
func (p *probe) begin() {
	p.d.mu.Lock()
	over := p.d.overrun
	p.d.mu.Unlock()
	shed := shedByKernel(softnetFile)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got, p.since, p.shed = map[uint32]bool{}, over, shed
}

func (p *probe) arrived() (got, overrun int) {
	p.d.mu.Lock()
	over := p.d.overrun
	p.d.mu.Unlock()
	shed := shedByKernel(softnetFile)
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got), int(over-p.since) + int(min(max(0, shed-p.shed), maxTrain))
}

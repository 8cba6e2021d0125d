package fabric

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/route"
)

// PairRequest asks for one measured pair. For is the time that its transfers take together.
type PairRequest struct {
	A       string         `json:"a"`
	B       string         `json:"b"`
	Address string         `json:"address"` // of B's tester
	Streams int            `json:"streams"`
	For     fleet.Duration `json:"for"`
	Sizes   []int64        `json:"sizes,omitempty"` // bytes of single messages, ascending; none = curveSizes
	History []Past         `json:"history,omitempty"`
}

// HostVerbs are what gate D asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"fabric-pair": gates.Answer(MeasurePair), "fabric-incast": gates.Answer(MeasureIncast), "fabric-tool": gates.Answer(MeasureTool),
		"fabric-decode": gates.Answer(MeasureDecode),
	}
}

const (
	togetherRepeats = 5
	aloneRepeats    = 3
	// parts of the asked time: both at once, each way alone, the two curves.
	parts = togetherRepeats + 2*aloneRepeats + 1
	// leastPart is as short as a repeat may be: a busy receiver may not run for a while.
	leastPart = 50 * time.Millisecond
	// partRoundTrips a repeat has at least, since streams gather speed in round trips: one that
	// ends before its first bytes arrive measures nothing. Ways beyond longestWay are for the
	// floor to judge.
	partRoundTrips = 8
	longestWay     = 250 * time.Millisecond
)

// measuring is the asker's end of a session.
type measuring struct {
	address string
	token   string
	c       net.Conn
	r       *bufio.Reader
	rtt     time.Duration
	phases  int
	iface   string
	end     End
}

// open connects to a tester and begins a session.
func open(ctx context.Context, address string) (*measuring, End, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, End{}, err
	}
	c, err := reach(ctx, address)
	if err != nil {
		return nil, End{}, err
	}
	m := &measuring{address: address, token: newToken(), c: c, r: bufio.NewReaderSize(c, maxLine)}
	_ = c.SetDeadline(time.Now().Add(startLimit))
	answer, err := ask(c, m.r, control{Op: "open", Token: m.token})
	if err == nil && answer.End == nil {
		err = errors.New("read from the fabric tester: it does not tell what it sees")
	}
	if err == nil {
		err = m.roundTrip()
	}
	if err != nil {
		_ = c.Close()
		return nil, End{}, err
	}
	_ = c.SetDeadline(time.Now().Add(maxPhase))
	m.iface, _ = route.Via(host)
	m.end = endTowards("/sys", host)
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		m.end.Seen = at.IP.String()
	}
	return m, answer.End.clean(), nil
}

func (m *measuring) close() { abandon(m.c) }

// reach connects, and waits a little for a tester that has just been started.
func reach(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", address)
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

// attach opens one more connection of the session.
func (m *measuring) attach(ctx context.Context, first control) (net.Conn, *bufio.Reader, error) {
	c, err := (&net.Dialer{Timeout: startLimit}).DialContext(ctx, "tcp", m.address)
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(startLimit))
	r := bufio.NewReaderSize(c, maxLine)
	if _, err := ask(c, r, first); err != nil {
		abandon(c)
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return c, r, nil
}

func (m *measuring) ask(line control) (control, error) {
	line.Token = ""
	return ask(m.c, m.r, line)
}

// roundTrip keeps the least of several pings.
func (m *measuring) roundTrip() error {
	m.rtt = time.Hour
	for range pings {
		begin := time.Now()
		if _, err := m.ask(control{Op: "ping"}); err != nil {
			return err
		}
		m.rtt = min(m.rtt, time.Since(begin))
	}
	return nil
}

// MeasurePair measures both directions between this host, A, and B. A B that cannot be
// reached is an answer, not an error.
func MeasurePair(ctx context.Context, q PairRequest) (Pair, error) {
	p := Pair{A: q.A, B: q.B, Tool: toolName, Streams: q.Streams}
	host, _, err := net.SplitHostPort(q.Address)
	if err != nil || q.Streams < 1 || q.Streams > maxStreams || q.For <= 0 || q.For.D() > maxPhase {
		return p, fmt.Errorf("measure %s ↔ %s: want an address, 1 to %d streams and a length to %s", q.A, q.B, maxStreams, maxPhase)
	}
	if !curveFits(q.Sizes) {
		return p, fmt.Errorf("measure %s ↔ %s: want at most %d sizes of 1 to %d bytes, the smallest first", q.A, q.B, maxCurve, int64(maxMessage))
	}
	fail := func(err error) (Pair, error) { return p, fmt.Errorf("measure %s ↔ %s: %w", q.A, q.B, err) }
	m, end, err := open(ctx, q.Address)
	if err != nil {
		if ctx.Err() != nil {
			return fail(ctx.Err())
		}
		p.EndA, p.Unreachable = endTowards("/sys", host), printable(err.Error(), 300)
		p.Fingerprint = p.fingerprint(q)
		return p, nil
	}
	defer m.close()
	defer context.AfterFunc(ctx, m.close)()
	p.RTT, p.EndA, p.EndB = float64(m.rtt.Nanoseconds())/1e3, m.end, end
	p.Fingerprint = p.fingerprint(q)
	for _, h := range q.History {
		if h.Fingerprint == p.Fingerprint {
			p.History = append(p.History, h)
		}
	}
	if err := m.all(ctx, q, &p); err != nil {
		return fail(err)
	}
	return p, nil
}

// all takes every figure of a pair, those of an idle link first.
func (m *measuring) all(ctx context.Context, q PairRequest, p *Pair) error {
	before := counters("/sys", m.iface)
	theirs, err := m.ask(control{Op: "counters"})
	if err != nil {
		return err
	}
	u, err := m.datagrams()
	if err != nil {
		return err
	}
	defer u.close()
	if err := m.sizes(ctx, u, p); err != nil {
		return err
	}
	part := max(q.For.D()/parts, leastPart, partRoundTrips*min(m.rtt, longestWay))
	if p.Forward.PathMTU >= min(p.EndA.MTU, p.EndB.MTU, mostMTU) && p.Back.PathMTU >= min(p.EndA.MTU, p.EndB.MTU, mostMTU) {
		sizes := q.Sizes
		if len(sizes) == 0 {
			sizes = curveSizes
		}
		if p.Forward.Curve, err = m.curve(ctx, messageTo, sizes, part/2); err == nil {
			p.Back.Curve, err = m.curve(ctx, messageFrom, sizes, part/2)
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err() // a message that never arrives is in the figures: the curve is short
		}
	} // else large messages hang, which is found already
	if err := m.transfers(ctx, q.Streams, part, p); err != nil {
		return err
	}
	if err := m.trains(ctx, u, p, q.For.D()); err != nil {
		return err
	}
	after, err := m.ask(control{Op: "counters"})
	if err != nil {
		return err
	}
	p.CountersA, p.CountersB = rises(before, counters("/sys", m.iface)), rises(theirs.Counters, after.Counters)
	return nil
}

// transfers fills the link: both ways at once, then each way alone.
func (m *measuring) transfers(ctx context.Context, streams int, part time.Duration, p *Pair) error {
	for i := range togetherRepeats + 2*aloneRepeats {
		forward, back := streams, streams
		if i >= togetherRepeats {
			forward, back = streams*(1-i%2), streams*(i%2)
		}
		there, here, err := m.transfer(ctx, forward, back, part)
		if err != nil {
			return err
		}
		for _, side := range []struct {
			d       *Direction
			streams int
			rate    float64
			got     counted
			sent    tally
		}{{&p.Forward, forward, there.gbps(), there, here.Sent}, {&p.Back, back, here.gbps(), here, there.Sent}} {
			switch {
			case side.streams == 0:
				continue
			case i < togetherRepeats:
				side.d.Together = append(side.d.Together, side.rate)
			default:
				side.d.Alone = append(side.d.Alone, side.rate)
			}
			side.d.Bytes += side.got.Bytes
			side.d.Segments += side.sent.Segments
			side.d.Retransmits += side.sent.Retransmits
		}
	}
	for _, d := range []*Direction{&p.Forward, &p.Back} {
		d.Gbps, d.Spread = centre(d.Together)
		d.AloneGbps = median(d.Alone)
	}
	return nil
}

func (c counted) gbps() float64 {
	if c.Window <= 0 || c.Bytes <= 0 {
		return 0
	}
	return 8 * float64(c.Bytes) / c.Window.Seconds() / 1e9
}

package standby

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// witness watches the connection that the probes keep open. Its gone channel gets a token
// when the primary ended a connection and a new one is refused.
type witness struct {
	dial    dialer
	address string
	limit   time.Duration // of one connect, and of listening to a new connection
	ended   chan struct{}
	gone    chan struct{}
}

func newWitness(d dialer, address string, limit time.Duration) *witness {
	return &witness{d, address, limit, make(chan struct{}, 1), make(chan struct{}, 1)}
}

// connect is the DialContext of the probes.
func (w *witness) connect(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &watched{Conn: c, w: w}, nil
}

// watched reports its end when the other side ended it. The transport reads at all times,
// also between requests, so the end is seen when it happens.
type watched struct {
	net.Conn
	w      *witness
	closed atomic.Bool
}

func (c *watched) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *watched) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// A connection that timed out says nothing about the process at its other end.
	if err != nil && !c.closed.Load() && !timedOut(err) {
		signal(c.w.ended)
	}
	return n, err
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// signal puts a token into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run asks after each end whether anything still listens. It returns when ctx ends.
func (w *witness) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ended:
		}
		if w.refused(ctx) {
			signal(w.gone)
		}
	}
}

// refused connects until it is refused (true), or a connection lasts or cannot be made for
// another reason. A process that is being ended may still accept for a moment, or reset a
// connection that its closing listener had half accepted.
func (w *witness) refused(ctx context.Context) bool {
	for wait := time.Millisecond; ; wait = min(2*wait, w.limit) {
		err := w.listen(ctx)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		if !errors.Is(err, errEnded) && !errors.Is(err, syscall.ECONNRESET) || !pause.For(ctx, wait) {
			return false
		}
	}
}

var errEnded = errors.New("the other side ended the connection")

// listen makes a connection and reads from it until it ends or the limit is over.
func (w *witness) listen(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	c, err := w.dial(try, "tcp", w.address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(w.limit))
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })()
	if _, err := c.Read(make([]byte, 1)); err != nil && !timedOut(err) {
		return errEnded
	}
	return nil
}

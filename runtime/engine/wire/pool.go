package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Errors of a call that never reached the engine.
var (
	// ErrPool: no connection came free in time. It says nothing of the engine.
	ErrPool = errors.New("no free connection to the engine in time")
	// ErrClosed: the pool was closed.
	ErrClosed = errors.New("connections to the engine are closed")
)

// Options of a pool. Zero values take the defaults that each line names.
type Options struct {
	Address     string        // host:port
	MaxConns    int           // at once; 768
	MaxIdle     int           // kept between calls; half of MaxConns
	IdleTimeout time.Duration // 4 s, below the 5 s after which engines close
	PoolTimeout time.Duration // wait for a free connection; 5 s
	Connect     time.Duration // limit of a dial; 10 s
	MaxHead     int64         // bytes of an answer's head; 64 KiB
}

// Pool holds the connections to one engine. It is safe for concurrent use.
type Pool struct {
	opt    Options
	seats  chan struct{}
	dialer net.Dialer

	mu     sync.Mutex
	idle   []*conn // newest last
	closed bool
}

// New returns a pool that has not connected yet.
func New(o Options) *Pool {
	if o.MaxConns <= 0 {
		o.MaxConns = 768
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = max(1, o.MaxConns/2)
	}
	def(&o.IdleTimeout, 4*time.Second)
	def(&o.PoolTimeout, 5*time.Second)
	def(&o.Connect, 10*time.Second)
	if o.MaxHead <= 0 {
		o.MaxHead = 64 << 10
	}
	return &Pool{opt: o, seats: make(chan struct{}, o.MaxConns), dialer: net.Dialer{Timeout: o.Connect, KeepAlive: 15 * time.Second}}
}

func def(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// take waits for a seat and returns a connection, used before or new.
func (p *Pool) take(ctx context.Context) (*conn, error) {
	if err := p.seat(ctx); err != nil {
		return nil, err
	}
	if c := p.reuse(); c != nil {
		return c, nil
	}
	n, err := p.dial(ctx)
	if err != nil {
		<-p.seats
		return nil, fmt.Errorf("connect to engine: %w", err)
	}
	return newConn(p, n), nil
}

// dial connects in a goroutine of its own: a dial needs a deep stack, which the goroutine of
// a long silent stream would keep.
func (p *Pool) dial(ctx context.Context) (n net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = p.dialer.DialContext(ctx, "tcp", p.opt.Address)
	}()
	<-done
	return n, err
}

func (p *Pool) seat(ctx context.Context) error {
	select {
	case p.seats <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(p.opt.PoolTimeout)
	defer late.Stop()
	select {
	case p.seats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return ErrPool
	}
}

// reuse returns the newest idle connection that is still good and drops those that are not.
func (p *Pool) reuse() *conn {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(c.last) < p.opt.IdleTimeout && c.quiet() {
			return c
		}
		c.net.Close()
	}
}

// give frees the seat and keeps the connection if it may be used again.
func (p *Pool) give(c *conn, again bool) {
	if again {
		c.last = time.Now()
		p.mu.Lock()
		again = !p.closed && len(p.idle) < p.opt.MaxIdle
		if again {
			p.idle = append(p.idle, c)
		}
		p.mu.Unlock()
	}
	if !again {
		c.net.Close()
	}
	<-p.seats
}

// CloseIdle closes the connections that nobody uses, for example of an engine that is gone.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.net.Close()
	}
}

// Close closes idle connections and keeps none from now on; running calls end by themselves.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
}

// Busy is how many calls hold a connection.
func (p *Pool) Busy() int { return len(p.seats) }

// past is a deadline that ends every read and write at once.
var past = time.Unix(1, 0)

func isDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

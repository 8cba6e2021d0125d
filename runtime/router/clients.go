package router

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Descriptors of a process, as ClientLimit shares them out.
const (
	ownFiles         = 24 + spareClients // output, listener, journal, state, lease and their locks, the primary, traces
	filesPerEngine   = 2                 // probes and orders
	legsPerRequest   = 2
	leastClients     = 4
	clientsToldAgain = time.Minute // least time between two log lines of a crowd
)

// ClientLimit is how many connections of clients a process that may open so many files keeps, so
// that its lease, its state, its journal and its engines never lack one: each of the seats has its
// two legs, or each connection has where the limit is small.
func ClientLimit(files uint64, seats, engines int) int {
	const plenty = 1 << 30
	left := int(min(files, plenty)) - ownFiles - filesPerEngine*engines
	return max(left-legsPerRequest*seats, left/(1+legsPerRequest), leastClients)
}

// LeastFiles is how many files a router of so many engines must be allowed to open: with fewer it
// would lose its lease or its engines to clients, or have no room for one request.
func LeastFiles(engines int) int {
	return ownFiles + filesPerEngine*engines + legsPerRequest + leastClients
}

// clients is the listener of a router: it bounds the connections that clients keep open. At the
// bound a new one takes the place of the one that has been without a request for longest; while
// all are in a request a few more are let in as spare ones, and then it waits.
type clients struct {
	net.Listener
	logger *slog.Logger

	mu     sync.Mutex
	change *sync.Cond
	all    pool // most 0 = no bound
	spare  pool
	closed int // for want of room
	told   time.Time
	ended  bool
}

func newClients(l net.Listener, most int, logger *slog.Logger) *clients {
	c := &clients{Listener: l, logger: logger, all: newPool(most), spare: newPool(spareClients)}
	c.change = sync.NewCond(&c.mu)
	return c
}

// Accept implements net.Listener.
func (c *clients) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	in := c.enter(conn)
	if in == nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return in, nil
}

// Close implements net.Listener. Connections stay open.
func (c *clients) Close() error {
	c.mu.Lock()
	c.ended = true
	c.change.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}

// enter makes room for a connection; nil when the listener has ended meanwhile.
func (c *clients) enter(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ended {
		if !c.all.full() {
			return c.all.add(conn)
		}
		c.crowded()
		if gone := c.all.idlest(0); gone != nil {
			c.close(gone)
			continue
		}
		if !c.spare.full() {
			return c.spare.add(&spareConn{Conn: conn})
		}
		if gone := c.spare.idlest(spareGrace); gone != nil {
			c.close(gone)
			continue
		}
		if gone := c.spare.slowest(spareGrace); gone != nil {
			c.close(gone)
			continue
		}
		later := time.AfterFunc(spareGrace, c.change.Broadcast)
		c.change.Wait()
		later.Stop()
	}
	return nil
}

// promote gives a spare connection, which is in a request, a place within the bound, if one is free
// or the connections that rest leave one within their grace.
func (c *clients) promote(conn *spareConn) bool {
	end := time.Now().Add(freshGrace)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ended {
		if _, spare := c.spare.open[conn]; !spare {
			return false // it was closed for another one
		}
		gone := net.Conn(nil)
		if c.all.full() {
			gone = c.all.idlest(0)
		}
		switch {
		case gone != nil:
			c.close(gone)
			continue
		case !c.all.full():
			delete(c.spare.open, conn)
			c.all.open[conn] = nil
			conn.within.Store(true)
			c.change.Signal()
			return true
		case c.all.rest.Len() == 0 || time.Now().After(end):
			return false
		}
		later := time.AfterFunc(freshGrace/4, c.change.Broadcast)
		c.change.Wait()
		later.Stop()
	}
	return false
}

func (c *clients) close(gone net.Conn) {
	_ = gone.Close()
	c.closed++
}

func (c *clients) crowded() {
	if now := time.Now(); c.told.IsZero() || now.Sub(c.told) >= clientsToldAgain {
		c.told = now
		c.logger.Warn("clients have all connections that the limit of open files leaves them: the ones longest without a request are closed for new ones, which wait while all are in a request",
			"most", c.all.most, "closed", c.closed)
	}
}

// state is the server's ConnState.
func (c *clients) state(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &c.all
	if _, spare := c.spare.open[conn]; spare {
		of = &c.spare
	}
	if of.state(conn, s) {
		c.change.Signal()
	}
}

// count tells the connections that are open, and how many were closed for want of room.
func (c *clients) count() (open, closed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all.open) + len(c.spare.open), c.closed
}

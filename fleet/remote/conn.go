package remote

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// parentGrace is how long the loss of a connection waits to see whether its jump host is lost too.
const parentGrace = 100 * time.Millisecond

// conn is one authenticated connection, watched until it ends.
type conn struct {
	hop    Hop
	via    *conn
	client *ssh.Client
	meter  *meter
	key    ssh.PublicKey

	once   sync.Once
	lost   chan struct{} // closed when the connection has ended
	cause  error         // why, set before lost is closed
	closed chan struct{} // closed by close, before the connection is
	shut   sync.Once
	wg     sync.WaitGroup
}

var errClosed = errors.New("closed here")

func newConn(a *attempt, m *meter, client *ssh.Client) *conn {
	c := &conn{hop: a.hop, via: a.via, client: client, meter: m, key: a.verifier.passed,
		lost: make(chan struct{}), closed: make(chan struct{})}
	c.wg.Go(func() {
		err := client.Wait()
		if err == nil {
			err = errors.New("closed by the other side")
		}
		c.end(err)
	})
	c.wg.Go(func() { c.keepalive(a.opts.KeepaliveInterval, a.opts.KeepaliveMisses) })
	return c
}

// end records the first reason.
func (c *conn) end(err error) {
	c.once.Do(func() {
		c.cause = err
		close(c.lost)
	})
	_ = c.client.Close()
}

// close ends the connection and waits for its goroutines.
func (c *conn) close() {
	c.shut.Do(func() { close(c.closed) })
	c.end(errClosed)
	c.wg.Wait()
}

// ends reports whether a connection that let something down is lost itself.
func (c *conn) ends() bool {
	select {
	case <-c.lost:
		return true
	case <-time.After(parentGrace):
		return false
	}
}

// dead names the hop to blame for the loss of c, the nearest to this side.
func (c *conn) dead() *conn {
	if c.via == nil {
		return c
	}
	if c.via.ends() {
		return c.via.dead()
	}
	return c
}

// keepalive asks the server for an answer at each interval and ends the connection after
// misses intervals without one and without any other traffic.
func (c *conn) keepalive(interval time.Duration, misses int) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	answered := make(chan error, 1)
	waiting, quiet := false, silence{interval: interval, seen: c.meter.in.Load(), last: time.Now()}
	for {
		select {
		case <-c.lost:
			return
		case err := <-answered:
			waiting, quiet.missed = false, 0
			if err != nil {
				c.end(err)
				return
			}
		case <-tick.C:
			if quiet.tick(time.Now(), c.meter.in.Load(), waiting) >= misses {
				c.end(fmt.Errorf("no answer to %d keepalives, %s apart", misses, interval))
				return
			}
			if waiting {
				continue
			}
			waiting = true
			asking.Go(func() {
				_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			})
		}
	}
}

package router

import (
	"container/list"
	"net"
	"net/http"
	"time"
)

// pool is a bounded set of connections, which tells those without a request from the others.
type pool struct {
	most int                        // 0 = no bound
	open map[net.Conn]*list.Element // nil = in a request
	rest list.List                  // of resting, the longest without a request first
}

type resting struct {
	conn   net.Conn
	since  time.Time
	served bool // it has had a request
}

// freshGrace is what a new connection has for its first bytes.
const freshGrace = 100 * time.Millisecond

func newPool(most int) pool { return pool{most: most, open: map[net.Conn]*list.Element{}} }

func (p *pool) full() bool { return p.most > 0 && len(p.open) >= p.most }

func (p *pool) add(conn net.Conn) net.Conn {
	return p.put(conn, false)
}

func (p *pool) put(conn net.Conn, served bool) net.Conn {
	p.open[conn] = p.rest.PushBack(resting{conn, time.Now(), served})
	return conn
}

// idlest takes out the connection that has been without a request for longest; nil for none. One whose
// request lies unread stays, and one that has not had any for as long as the grace.
func (p *pool) idlest(grace time.Duration) net.Conn {
	now := time.Now()
	for e := p.rest.Front(); e != nil; e = e.Next() {
		r, _ := e.Value.(resting)
		least := grace
		if !r.served {
			least = max(grace, freshGrace)
		}
		if now.Sub(r.since) < least || pending(r.conn) {
			continue
		}
		p.rest.Remove(e)
		delete(p.open, r.conn)
		return r.conn
	}
	return nil
}

// state is the server's word on a connection. room reports that a new one may now find a place.
func (p *pool) state(conn net.Conn, s http.ConnState) (room bool) {
	at, known := p.open[conn]
	if !known {
		return false // it was closed for another one
	}
	switch s {
	case http.StateActive:
		if at != nil {
			p.rest.Remove(at)
		}
		p.open[conn] = nil
	case http.StateIdle:
		if at == nil {
			p.put(conn, true)
		}
		return true
	case http.StateClosed, http.StateHijacked:
		if at != nil {
			p.rest.Remove(at)
		}
		delete(p.open, conn)
		return true
	}
	return false
}

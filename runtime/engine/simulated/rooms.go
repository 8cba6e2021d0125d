package simulated

import (
	"context"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// meeting is where a request's legs meet.
type meeting struct {
	Host string
	Port int
	Room uint64
}

// room is one meeting on the prefilling side. Guarded by Server.mu, but for the channels.
type room struct {
	leg     *call         // the request here; nil until it comes
	claimed chan struct{} // closed when the decoding side came
	ready   chan struct{} // closed when the KV can be read
	done    chan struct{} // closed when the KV was read, or never will be
	held    []item        // the answer, kept until then
	pin     *core.Pin
	over    bool
}

// roomOf returns the room of a number, made when nobody is in it. Call it with mu held.
func (s *Server) roomOf(id uint64) *room {
	r := s.pair.rooms[id]
	if r == nil {
		r = &room{claimed: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{})}
		s.pair.rooms[id] = r
	}
	return r
}

// enter puts a prefilling request into its room. Whoever is there already is pushed out and
// waits for nobody.
func (s *Server) enter(c *call) *room {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := c.p.meet.Room
	if r := s.pair.rooms[id]; r != nil && r.leg != nil {
		delete(s.pair.rooms, id)
	}
	r := s.roomOf(id)
	r.leg, c.room = c, r
	s.calls[c] = struct{}{}
	return r
}

// leave ends a request's stay: what was not read by now never will be.
func (s *Server) leave(c *call) {
	s.with(func(now time.Time) {
		s.dropRoom(c)
		if r := c.room; !r.over {
			r.over = true
			if r.pin != nil {
				s.core.Unpin(now, r.pin.ID)
			}
		}
	})
}

func (s *Server) dropRoom(c *call) {
	if id := c.p.meet.Room; s.pair.rooms[id] == c.room {
		delete(s.pair.rooms, id)
	}
}

// prefilled keeps a request's answer until its KV is read. Call it with mu held.
func (r *room) prefilled(end item, pin *core.Pin) {
	r.held, r.pin = append(r.held, end), pin
	close(r.ready)
}

// settle ends a meeting: the KV was read, or err says why not. It returns false when it had
// ended before.
func (s *Server) settle(now time.Time, r *room, err error) bool {
	if r == nil || r.over {
		return false
	}
	r.over = true
	close(r.done)
	s.dropRoom(r.leg)
	if r.pin != nil {
		if err == nil {
			s.core.Notice(now, r.pin.ID)
		} else {
			s.core.Unpin(now, r.pin.ID)
		}
	}
	l := r.leg.lanes[0]
	if err != nil {
		l.push(item{done: true, err: err})
		return true
	}
	for _, it := range r.held {
		l.push(it)
	}
	return true
}

// await holds a prefilling request until the decoding side came; false when it is to answer
// without computing anything.
func (s *Server) await(c *call) bool {
	r := c.room
	limit := time.NewTimer(s.cfg.RendezvousTimeout.D())
	defer limit.Stop()
	select {
	case <-r.claimed:
		return true
	case <-c.legs.Done():
	case <-limit.C:
		if s.pass(c.legs) != nil { // a frozen process notices nothing
			return false
		}
		s.with(func(now time.Time) {
			if s.settle(now, r, errNobodyCame) {
				s.pair.failedBootstraps++
				s.pair.unscheduled++
			}
		})
	}
	return false
}

// watch ends a meeting whose KV nobody reads. The prefill itself has no limit.
func (s *Server) watch(ctx context.Context, r *room) {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return
	}
	limit := time.NewTimer(s.cfg.RendezvousTimeout.D())
	defer limit.Stop()
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-limit.C:
		if s.pass(ctx) != nil {
			return
		}
		s.with(func(now time.Time) {
			if s.settle(now, r, errNotRead) {
				s.pair.failedTransfers++
			}
		})
	}
}

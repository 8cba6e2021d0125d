package simulated

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// serveLeg answers a request of the SGLang dialect: a whole one, or one of two legs as the
// process's role has it.
func (s *Server) serveLeg(w http.ResponseWriter, c *call) {
	run := true
	if c.p.prefills {
		s.enter(c)
		defer s.leave(c)
		if run = s.await(c); run {
			s.run(func() { s.watch(c.legs, c.room) })
		}
	}
	defer c.close()
	if run {
		if err := c.submit(); errors.Is(err, errSilent) {
			<-c.ctx.Done()
			panic(http.ErrAbortHandler)
		} else if err != nil {
			c.giveUp(w, s.refusalOf(err))
			return
		}
	}
	var err error
	if c.p.stream {
		err = c.stream(w)
	} else {
		err = c.buffer(w)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // nothing more may reach this client
	}
}

// readRoom takes a request's meeting; which leg it is depends on the process. Without a role
// the members are ignored, as by the real engine.
func (s *Server) readRoom(f *fields, p *params) *refusal {
	role := s.pairRole()
	if role == engine.RoleNone {
		return nil
	}
	m := &meeting{Host: f.string("bootstrap_host"), Port: defaultBootstrap}
	if n, ok := f.int("bootstrap_port"); ok {
		m.Port = n
	}
	room, ok := f.uint("bootstrap_room")
	switch {
	case f.err != nil:
		return f.err
	case !ok:
		return badRequest("bootstrap_room", "a %s process serves no request without a room", role)
	case len(p.prompts) != 1 || p.n != 1:
		return badRequest("bootstrap_room", "a batch needs a room for each of its sequences")
	case role == engine.RoleDecode && (m.Host == "" || m.Port < 1 || m.Port > 65535):
		return badRequest("bootstrap_host", "a decoding process needs the bootstrap server's address")
	}
	m.Room, p.meet = room, m
	p.prefills = role == engine.RolePrefill
	return nil
}

// prepare gives a leg's sequence its part of the exchange.
func (p *params) prepare(seq *core.Seq) {
	switch {
	case p.meet == nil:
	case p.prefills:
		seq.Export, seq.MaxTokens, seq.MayStop = true, 1, false
	default:
		seq.Import = &core.Remote{Whole: true}
	}
}

// fetchPair brings a decoding leg's KV, or its failure, to the core. It tells the other side,
// unless that side is what failed.
func (s *Server) fetchPair(c *call, seq *core.Seq, f core.Fetch) {
	began := time.Now()
	contents, err := s.receive(c, f)
	if s.pass(c.ctx) != nil || c.ctx.Err() != nil || errors.Is(context.Cause(c.legs), errAborted) {
		return
	}
	arrived := err == nil
	if arrived {
		err = s.inspect(c, contents)
	}
	s.countRead(f, err, time.Since(began))
	s.fetchDone(seq, contents, err)
	if arrived && !s.takeFault(faultNotice) {
		s.report(c.p.meet, err != nil)
	}
}

// inspect plays what can go wrong with KV on its way, and finds it where checksums are on.
func (s *Server) inspect(c *call, contents [][]int32) error {
	if s.takeRead(c.p.meet.Port) {
		return errTransfer
	}
	if s.takeFault(faultWrongBlock) {
		contents[0][0]++
	}
	if s.cfg.Checksum && checksum(contents) != c.sum {
		return errTransfer
	}
	return nil
}

var errAborted = errors.New("request was aborted")

// abort ends requests by their id, "" = all, with an answer to their clients.
func (s *Server) abort(id string) {
	s.with(func(now time.Time) {
		for c := range s.calls {
			if (id != "" && c.id != id) || c.legs.Err() != nil {
				continue
			}
			c.stopLegs(errAborted)
			if c.room != nil && !c.room.over {
				c.room.over = true
				s.dropRoom(c)
				if c.room.pin != nil {
					s.core.Unpin(now, c.room.pin.ID)
				}
			}
			for _, l := range c.lanes {
				s.core.Abort(now, l.seq)
				l.push(item{done: true, reason: "abort"})
			}
		}
	})
}

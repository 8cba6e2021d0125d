package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

const maxBody = 64 << 20

// readBody reads a JSON request or returns the refusal.
func readBody(w http.ResponseWriter, r *http.Request) (*fields, *refusal) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, badSchema("", "Unsupported Media Type: want application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badSchema("body", "the body cannot be read")
	}
	return readFields(body)
}

// generate answers completions and chat.
func (s *Server) generate(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, bad := readBody(w, r)
		if bad != nil {
			bad.write(w)
			return
		}
		if !s.sgl() && s.takeFault(faultBusy) {
			busy().write(w)
			return
		}
		p, bad := s.readParams(f, chat)
		c := s.newCall(r, p)
		defer c.endLegs()
		if bad != nil {
			s.tell(c)
			bad.write(w)
			return
		}
		if s.played(w, c) {
			return
		}
		if s.sgl() {
			s.serveLeg(w, c)
			return
		}
		s.serve(w, c)
	}
}

// played answers with what is injected instead of an answer. Like a refusal of the serving layer,
// a 4xx lets the producer free its blocks.
func (s *Server) played(w http.ResponseWriter, c *call) bool {
	status := s.takeStatus(c.p)
	switch {
	case status >= 400:
		if status < 500 {
			s.tell(c)
		}
		statusRefusal(status).write(w)
	case status != 0:
		writeJSON(w, status, []byte("{}"))
	case s.sgl() && s.takeFault(faultBusy):
		c.giveUp(w, s.refusalOf(core.ErrBusy))
	case s.takeFault(faultGarbage):
		if c.p.stream {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write([]byte("<html>\x00\xff{\"id\": unfinished\r\n\r\nretry: x"))
	default:
		return false
	}
	return true
}

func (s *Server) serve(w http.ResponseWriter, c *call) {
	t := c.p.transfer
	switch {
	case t.take && t.hangs:
		<-c.ctx.Done()
		s.with(func(time.Time) { s.die() })
		return
	case t.take && t.dies:
		s.with(func(time.Time) { s.die() })
	}
	err := c.submit()
	if errors.Is(err, errSilent) {
		<-c.ctx.Done()
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		s.refusalOf(err).write(w)
		return
	}
	defer c.close()
	defer s.tell(c)
	if t.take && t.from.Heartbeats {
		s.run(func() { s.peers.heartbeats(c) })
	}
	if c.p.stream {
		err = c.stream(w)
	} else {
		err = c.buffer(w)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // nothing more may reach this client
	}
}

// newCall lays out a lane for each choice of each prompt.
func (s *Server) newCall(r *http.Request, p *params) *call {
	kind := "cmpl-"
	if p.chat {
		kind = "chatcmpl-"
	}
	id := r.Header.Get("X-Request-Id")
	if s.sgl() {
		kind, id = "", p.id
	}
	if id == "" {
		id = fmt.Sprintf("%016x", rand.Uint64())
	}
	c := &call{
		srv: s, p: p, id: kind + id, created: s.now().Unix(), ctx: r.Context(),
		ready: make(chan struct{}, 1), read: make(chan struct{}), fault: s.takeCallFault(),
	}
	c.legs, c.stopLegs = context.WithCancelCause(c.ctx)
	for i, prompt := range p.prompts {
		for k := range p.n {
			c.lanes = append(c.lanes, s.newLane(c, prompt, i, k))
		}
	}
	return c
}

func (s *Server) newLane(c *call, prompt []int32, i, k int) *lane {
	p := c.p
	l := &lane{call: c, index: i*p.n + k}
	id := fmt.Sprintf("%s-%d-%08x", c.id, i, rand.Uint32())
	if p.n > 1 {
		id = fmt.Sprintf("%d_%s", k, id)
	}
	seed := p.seed
	if p.temperature == 0 {
		seed = 0
	}
	l.seq = &core.Seq{
		ID: id, Prompt: prompt, MaxTokens: p.maxTokens, MinTokens: p.minTokens, Seed: seed, Choice: k,
		MayStop: p.unlimited, Salt: p.salt, Export: p.transfer.export, Sink: l,
	}
	if p.transfer.take {
		l.seq.Import = &core.Remote{Blocks: p.transfer.blocks}
	}
	p.prepare(l.seq)
	return l
}

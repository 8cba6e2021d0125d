package simulated

import (
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
		if s.takeFault(faultBusy) {
			busy().write(w)
			return
		}
		p, bad := s.readParams(f, chat)
		c := s.newCall(r, p)
		if bad != nil {
			s.tell(c)
			bad.write(w)
			return
		}
		s.serve(w, c)
	}
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
		refusalOf(err).write(w)
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
	if id == "" {
		id = fmt.Sprintf("%016x", rand.Uint64())
	}
	c := &call{
		srv: s, p: p, id: kind + id, created: s.now().Unix(), ctx: r.Context(),
		ready: make(chan struct{}, 1), read: make(chan struct{}), fault: s.takeCallFault(),
	}
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
	return l
}

// promptTokens counts each prompt once, whatever the number of choices.
func (c *call) promptTokens() int {
	n := 0
	for _, ids := range c.p.prompts {
		n += len(ids)
	}
	return n
}

func (c *call) answerTokens() int {
	n := 0
	for _, l := range c.lanes {
		n += l.count
	}
	return n
}

// cachedTokens is known once the lanes ended. With a handoff the producer's figure counts.
func (c *call) cachedTokens() int {
	if c.p.transfer.take {
		return c.p.transfer.cached
	}
	return c.lanes[0].seq.Cached()
}

// Forms of the usage object: on every event, on a stream's last, in a buffered answer.
const (
	usagePlain = iota
	usageLast
	usageWhole
)

func (c *call) appendUsage(b []byte, form int) []byte {
	in, out := c.promptTokens(), c.answerTokens()
	b = append(b, `{"prompt_tokens":`...)
	b = appendInt(b, int64(in))
	b = append(b, `,"total_tokens":`...)
	b = appendInt(b, int64(in+out))
	b = append(b, `,"completion_tokens":`...)
	b = appendInt(b, int64(out))
	if form != usagePlain {
		b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
		b = appendInt(b, int64(c.cachedTokens()))
		switch {
		case c.p.chat:
			b = append(b, `,"created_cache_tokens":0`...)
		case form == usageWhole:
			b = append(b, `,"created_cache_tokens":null`...)
		}
		if form == usageWhole {
			b = append(b, `,"multimodal_tokens":null`...)
		}
		b = append(b, '}')
	}
	if form == usageWhole || (c.p.chat && form == usagePlain) {
		b = append(b, `,"completion_tokens_details":null`...)
	}
	return append(b, '}')
}

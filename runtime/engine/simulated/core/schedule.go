package core

import (
	"slices"
	"time"
)

// schedule starts a step when there is work: every decoding sequence advances by one token,
// prompts fill what is left of the token budget in order of arrival.
func (c *Core) schedule(now time.Time) {
	c.parts, c.decodes = c.parts[:0], c.decodes[:0]
	if c.frozen || c.dead {
		return
	}
	resident := c.pickDecodes()
	budget := c.cfg.MaxBatched - len(c.decodes)
	for _, s := range c.running {
		if s.prefilling() && budget > 0 {
			budget -= c.plan(s, budget)
		}
	}
	c.admit(now, budget)
	if len(c.parts) == 0 && len(c.decodes) == 0 {
		c.busy = false
		return
	}
	c.busy = true
	c.stepEnd = now.Add(c.cfg.stepTime(c.parts, len(c.decodes), resident, c.Slow, c.rng))
}

// pickDecodes finds a slot for each decoding sequence's newest token, preempting from the
// youngest when blocks run out, and returns the tokens resident for them.
func (c *Core) pickDecodes() (resident int) {
	for i := 0; i < len(c.running); i++ {
		s := c.running[i]
		if s.prefilling() {
			continue
		}
		for !c.grow(s) {
			victim := c.running[len(c.running)-1]
			c.preempt(victim)
			if victim == s {
				break
			}
		}
		if s.phase == running {
			c.decodes = append(c.decodes, s)
			resident += s.computed
		}
	}
	return resident
}

// grow makes room for one more token and writes it.
func (c *Core) grow(s *Seq) bool {
	if s.computed/c.cfg.BlockSize >= len(s.blocks) {
		id, ok := c.pool.take()
		if !ok {
			return false
		}
		s.blocks = append(s.blocks, id)
	}
	return true
}

func (c *Core) preempt(s *Seq) {
	c.running = c.running[:len(c.running)-1]
	c.free(s)
	s.phase, s.computed, s.cached, s.external = preempted, 0, 0, 0
	s.preempts++
	c.Stats.Preemptions++
	c.queue = slices.Insert(c.queue, 0, s)
}

// plan schedules the next piece of a prompt and writes its tokens; it returns the piece's
// length.
func (c *Core) plan(s *Seq, budget int) int {
	n := min(budget, s.length()-s.computed)
	c.parts = append(c.parts, part{seq: s, from: s.computed - s.base, to: s.computed - s.base + n})
	for range n {
		c.write(s)
	}
	return n
}

// write gives the next position its KV and publishes the block that it completes.
func (c *Core) write(s *Seq) {
	size := c.cfg.BlockSize
	pos := s.computed
	c.pool.blocks[s.blocks[pos/size]].tokens[pos%size] = s.at(pos)
	s.computed++
	if s.computed%size == 0 {
		c.publish(s, pos/size)
	}
}

func (c *Core) publish(s *Seq, k int) {
	size := c.cfg.BlockSize
	for pos := k * size; pos < (k+1)*size; pos++ {
		s.chain = fold(s.chain, s.at(pos))
	}
	c.pool.publish(s.blocks[k], s.chain)
}

// publishFull enters the blocks that a KV read filled: like a real engine, under the hash of
// the prompt that was asked for, whatever was read.
func (c *Core) publishFull(s *Seq) {
	for k := s.cached / c.cfg.BlockSize; k < s.computed/c.cfg.BlockSize; k++ {
		c.publish(s, k)
	}
}

// admit moves sequences from the queue into the batch, in order. A sequence that does not
// fit stops those behind it, but for one whose blocks are here already: it would hold for
// ever what the first one waits for. One that waits for a peer stops nobody.
func (c *Core) admit(now time.Time, budget int) {
	blocked := false
	for i := 0; i < len(c.queue) && len(c.running) < c.cfg.MaxNumSeqs && budget > 0; {
		s := c.queue[i]
		if s.phase == fetching || blocked && s.phase != fetched {
			i++
			continue
		}
		if s.phase != fetched && !c.allocate(s) {
			blocked = true
			i++
			continue
		}
		if s.phase != fetched && s.Import != nil {
			s.phase = fetching
			i++
			s.Sink.Fetch(s, c.fetch(s))
			continue
		}
		c.queue = slices.Delete(c.queue, i, i+1)
		c.running = append(c.running, s)
		s.phase = running
		if s.scheduled.IsZero() {
			s.scheduled = now
		}
		budget -= c.plan(s, budget)
	}
}

// allocate holds the blocks of everything that the sequence has to compute, or none.
func (c *Core) allocate(s *Seq) bool {
	size := c.cfg.BlockSize
	start := c.root
	for i := range len(s.Salt) {
		start = fold(start, int32(s.Salt[i]))
	}
	need := (s.length() + size - 1) / size
	known := (len(s.Prompt) - 1) / size
	if s.Import != nil && s.Import.Whole {
		known = 0
	}
	ids, chain := c.pool.match(start, s.Prompt, known)
	if need-len(ids) > c.pool.free {
		c.pool.drop(ids)
		return false
	}
	s.cached, s.chain = len(ids)*size, chain
	s.computed, s.base = s.cached, s.cached
	for len(ids) < need {
		id, _ := c.pool.take()
		ids = append(ids, id)
	}
	s.blocks = ids
	if s.Import != nil {
		s.external = len(s.Prompt) - s.cached
	}
	c.Stats.looked(s)
	return true
}

// fetch asks for the tail of the peer's list, as many blocks as are missing here.
func (c *Core) fetch(s *Seq) Fetch {
	missing := len(s.blocks) - s.cached/c.cfg.BlockSize
	list := s.Import.Blocks
	if len(list) > missing {
		list = list[len(list)-missing:]
	}
	return Fetch{Missing: missing, Blocks: list}
}

// finishStep hands out the tokens of the step that ends now.
func (c *Core) finishStep(now time.Time) {
	c.busy = false
	tokens := 0
	for _, p := range c.parts {
		s := p.seq
		tokens += p.to - p.from
		if s.phase != running || s.computed < s.length() {
			continue
		}
		s.state = c.digest(s)
		tokens++
		c.emit(now, s)
	}
	for _, s := range c.decodes {
		if s.phase != running {
			continue
		}
		c.write(s)
		s.state = fold(s.state, s.Out[len(s.Out)-1])
		tokens++
		c.emit(now, s)
	}
	c.Stats.Iteration.Observe(float64(tokens))
}

// digest folds the ids found in the KV; the newest token is recomputed from the request.
func (c *Core) digest(s *Seq) uint64 {
	size, h := c.cfg.BlockSize, c.root
	last := s.length() - 1
	for pos := range last {
		h = fold(h, c.pool.blocks[s.blocks[pos/size]].tokens[pos%size])
	}
	return fold(h, s.at(last))
}

func (c *Core) emit(now time.Time, s *Seq) {
	id := c.next(s)
	s.Out = append(s.Out, id)
	c.Stats.token(s, now)
	stop, ends, full := s.Sink.Token(s, id, now), id == eos && s.MayStop, len(s.Out) >= s.MaxTokens
	if !stop && !ends && !full {
		return
	}
	c.remove(s)
	r := Result{Reason: "length"}
	if stop || ends {
		r.Reason = "stop"
	}
	// A stop string is the serving layer's: to the scheduler it aborts an answer that it has
	// not ended itself in the same step.
	if s.Export && (ends || full) {
		r.Pin = c.pin(now, s)
	}
	c.end(now, s, r)
}

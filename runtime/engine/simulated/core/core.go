package core

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// Refusals of Submit and failures of a sequence.
var (
	ErrDead     = errors.New("engine core is dead")
	ErrDraining = errors.New("engine is shutting down")
	ErrBusy     = errors.New("engine queue is full")
	ErrLoad     = errors.New("kv could not be read")
)

// Core is one engine. See the package comment for who may call it.
type Core struct {
	cfg  Config
	rng  *rand.Rand
	pool *pool
	root uint64

	queue   []*Seq // waiting, fetching and fetched, in order
	held    []*Seq // accepted while paused
	running []*Seq
	pins    map[string]*Pin

	busy    bool // a step is under way
	stepEnd time.Time
	parts   []part
	decodes []*Seq

	// Slow multiplies step times; 0 and 1 leave them.
	Slow float64
	// Wide mixes symbols of several bytes into answers.
	Wide bool
	// MaxQueued refuses requests beyond this many in the queue; 0 = no limit.
	MaxQueued int

	paused, frozen, draining, dead bool
	Stats                          Stats
}

// part is a piece of a prompt computed in one step; from and to count the tokens that the
// sequence computes itself.
type part struct {
	seq      *Seq
	from, to int
}

// New returns an idle engine for a valid configuration.
func New(cfg Config) *Core {
	return &Core{
		cfg:   cfg,
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x6e617277)),
		pool:  newPool(cfg.Blocks, cfg.BlockSize, cfg.PrefixCaching),
		root:  root(cfg.Model),
		pins:  map[string]*Pin{},
		Stats: newStats(),
	}
}

// Submit queues sequences of one request; none is queued when it refuses.
func (c *Core) Submit(now time.Time, seqs ...*Seq) error {
	switch {
	case c.dead:
		return ErrDead
	case c.draining:
		return ErrDraining
	case c.MaxQueued > 0 && len(c.queue)+len(seqs) > c.MaxQueued:
		c.Stats.Rejected++
		return ErrBusy
	}
	for _, s := range seqs {
		s.arrived = now
	}
	if c.paused {
		c.held = append(c.held, seqs...)
		return nil
	}
	c.queue = append(c.queue, seqs...)
	c.Advance(now)
	return nil
}

// maxCatchUp bounds how far behind the clock a step may end: after a longer stall of the
// process, time that was lost stays lost.
const maxCatchUp = 250 * time.Millisecond

// Advance ends every step due at now, expires leases and starts the next step.
func (c *Core) Advance(now time.Time) {
	if c.frozen || c.dead {
		return
	}
	c.expire(now)
	for c.busy && !c.stepEnd.After(now) {
		at := c.stepEnd
		if now.Sub(at) > maxCatchUp {
			at = now
		}
		c.finishStep(at)
		c.schedule(at)
	}
	if !c.busy {
		c.schedule(now)
	}
}

// Next is when Advance must be called again; false means that only a call changes anything.
func (c *Core) Next() (time.Time, bool) {
	if c.frozen || c.dead {
		return time.Time{}, false
	}
	at, ok := c.stepEnd, c.busy
	for _, p := range c.pins {
		if !ok || p.Expires.Before(at) {
			at, ok = p.Expires, true
		}
	}
	return at, ok
}

// Abort ends a sequence without a word: its blocks are free at once and no counter of
// finished requests moves. It returns whether the sequence was alive.
func (c *Core) Abort(now time.Time, s *Seq) bool {
	if s.phase == finished {
		return false
	}
	c.remove(s)
	s.phase = finished
	c.free(s)
	c.Stats.Aborted++
	c.Advance(now)
	return true
}

func (c *Core) remove(s *Seq) {
	drop := func(list []*Seq) []*Seq {
		if i := slices.Index(list, s); i >= 0 {
			return slices.Delete(list, i, i+1)
		}
		return list
	}
	c.queue, c.held, c.running = drop(c.queue), drop(c.held), drop(c.running)
}

func (c *Core) free(s *Seq) {
	c.pool.drop(s.blocks)
	s.blocks = nil
}

// Fetched ends a KV read: contents are the tokens of the blocks asked for, in order. An error
// fails the sequence with ErrLoad, or computes the prompt here when recompute is set.
func (c *Core) Fetched(now time.Time, s *Seq, contents [][]int32, err error, recompute bool) {
	if s.phase != fetching || c.dead {
		return
	}
	switch {
	case err == nil:
		own := s.blocks[len(s.blocks)-len(contents):]
		for i, tokens := range contents {
			c.pool.fill(own[i], tokens)
		}
		s.computed = len(s.Prompt) - 1
		s.base = s.computed
		s.phase, s.Import = fetched, nil
		c.publishFull(s)
	case recompute:
		s.external, s.Import = 0, nil
		c.free(s)
		s.cached, s.computed = 0, 0
		s.phase = waiting
	default:
		c.remove(s)
		c.Stats.LoadFailures++
		c.end(now, s, Result{Reason: "error", Err: ErrLoad})
	}
	c.Advance(now)
}

func (c *Core) end(now time.Time, s *Seq, r Result) {
	s.phase = finished
	c.free(s)
	c.Stats.done(s, r, now)
	s.Sink.Done(s, r, now)
}

// Die fails everything: the core is gone for good.
func (c *Core) Die(now time.Time) {
	if c.dead {
		return
	}
	c.dead, c.busy = true, false
	all := slices.Concat(c.running, c.queue, c.held)
	c.running, c.queue, c.held = nil, nil, nil
	for _, s := range all {
		s.phase = finished
		s.Sink.Done(s, Result{Reason: "error", Err: ErrDead}, now)
	}
}

// Vanish drops everything without a word to anybody, as the default shutdown does.
func (c *Core) Vanish() {
	c.dead, c.busy = true, false
	c.running, c.queue, c.held = nil, nil, nil
}

// Drain refuses new sequences and lets the others end.
func (c *Core) Drain() { c.draining = true }

// Draining reports whether new sequences are refused.
func (c *Core) Draining() bool { return c.draining }

// Freeze stops time for the engine, or starts it again.
func (c *Core) Freeze(now time.Time, on bool) {
	if c.frozen && !on && c.busy {
		c.stepEnd = now
	}
	c.frozen = on
	c.Advance(now)
}

// Pause holds new sequences out of sight, or lets them in.
func (c *Core) Pause(now time.Time, on bool) {
	c.paused = on
	if !on {
		c.queue, c.held = append(c.queue, c.held...), nil
	}
	c.Advance(now)
}

// Paused reports whether new sequences are held.
func (c *Core) Paused() bool { return c.paused }

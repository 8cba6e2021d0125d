package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

const eos = token.EOS

// pin holds a finished sequence's blocks for a peer until notice or the lease's end.
func (c *Core) pin(now time.Time, s *Seq) *Pin {
	size := c.cfg.BlockSize
	p := &Pin{
		ID:      s.ID,
		Blocks:  slices.Clone(s.blocks[:(s.computed+size-1)/size]),
		Tokens:  s.computed,
		Cached:  s.Cached(),
		Expires: now.Add(c.cfg.Lease()),
	}
	for _, i := range p.Blocks {
		c.pool.hold(i)
	}
	c.pins[p.ID] = p
	return p
}

// Notice ends a pin because the peer is done. A notice for an unknown pin is counted.
func (c *Core) Notice(now time.Time, id string) bool {
	ok := c.Unpin(now, id)
	if !ok {
		c.Stats.LateNotices++
	}
	return ok
}

// Extend is a peer's heartbeat: the pin holds for at least two thirds of a lease more.
func (c *Core) Extend(now time.Time, id string) bool {
	p, ok := c.pins[id]
	if !ok {
		return false
	}
	if until := now.Add(c.cfg.Lease() * 2 / 3); until.After(p.Expires) {
		p.Expires = until
	}
	return true
}

func (c *Core) expire(now time.Time) {
	var due []*Pin
	for _, p := range c.pins {
		if !p.Expires.After(now) {
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *Pin) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.ID, b.ID))
	})
	for _, p := range due {
		delete(c.pins, p.ID)
		c.pool.drop(p.Blocks)
		c.Stats.Expired++
	}
}

// ExpireNow ends every lease.
func (c *Core) ExpireNow(now time.Time) {
	for _, p := range c.pins {
		p.Expires = now
	}
	c.Advance(now)
}

// Recycle ends every lease and overwrites the blocks that nobody holds.
func (c *Core) Recycle(now time.Time) {
	c.ExpireNow(now)
	c.pool.scramble()
}

// ForgetPrefixes empties the prefix cache.
func (c *Core) ForgetPrefixes() { c.pool.forget() }

// Pins is the number of handoffs held.
func (c *Core) Pins() int { return len(c.pins) }

// Read returns copies of blocks as they are now; false when a number is none of this engine's.
func (c *Core) Read(ids []int) ([][]int32, bool) {
	out := make([][]int32, len(ids))
	for k, i := range ids {
		if i < 0 || i >= len(c.pool.blocks) {
			return nil, false
		}
		out[k] = slices.Clone(c.pool.blocks[i].tokens)
	}
	return out, true
}

// Gauges is the engine's visible load.
type Gauges struct {
	Running  int     `json:"running"`
	Capacity int     `json:"capacity"` // queued for lack of room
	Deferred int     `json:"deferred"` // queued for a peer's KV
	Done     int     `json:"fetched"`  // of them with the KV here
	Usage    float64 `json:"usage"`
	Free     int     `json:"free_blocks"`
}

// Gauges counts what a scrape shows; requests held by a pause are in none of the numbers.
func (c *Core) Gauges() Gauges {
	g := Gauges{Running: len(c.running), Usage: c.pool.used(), Free: c.pool.free}
	for _, s := range c.queue {
		switch s.phase {
		case fetching:
			g.Deferred++
		case fetched:
			g.Deferred++
			g.Done++
		default:
			g.Capacity++
		}
	}
	return g
}

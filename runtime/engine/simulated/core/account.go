package core

import "time"

// Account is what the engine holds at one moment. An idle engine without outstanding handoffs
// holds nothing: every field is 0. A dead one is gone with all that it held.
type Account struct {
	// Running, Waiting, Fetching and Held count sequences: in the batch, queued for room or
	// with their KV here, waiting for a peer's KV, and kept out of sight by a pause.
	Running  int `json:"running"`
	Waiting  int `json:"waiting"`
	Fetching int `json:"fetching"`
	Held     int `json:"held"`
	// Leases are the handoffs outstanding, PinnedBlocks the blocks that they hold, each once.
	Leases       int `json:"leases"`
	PinnedBlocks int `json:"pinned_blocks"`
	// UsedBlocks are held by anybody, pins included.
	UsedBlocks int `json:"used_blocks"`
}

// Account counts what is held.
func (c *Core) Account() Account {
	if c.dead {
		return Account{}
	}
	a := Account{Running: len(c.running), Held: len(c.held), Leases: len(c.pins), UsedBlocks: len(c.pool.blocks) - 1 - c.pool.free}
	for _, s := range c.queue {
		if s.phase == fetching {
			a.Fetching++
		} else {
			a.Waiting++
		}
	}
	pinned := map[int]bool{}
	for _, p := range c.pins {
		for _, i := range p.Blocks {
			pinned[i] = true
		}
	}
	a.PinnedBlocks = len(pinned)
	return a
}

// Unpin ends a pin whose request is over at the producer itself; false when there is none.
func (c *Core) Unpin(now time.Time, id string) bool {
	p, ok := c.pins[id]
	if !ok {
		return false
	}
	delete(c.pins, id)
	c.pool.drop(p.Blocks)
	c.Advance(now)
	return true
}

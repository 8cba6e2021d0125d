package simulate

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/prefix"
)

// Head is what a request's prompt shares with others: its first Tokens are the same text as
// those of all requests of the Family; 0 = it is like no other.
type Head struct{ Family, Tokens int }

// cache is what an engine holds of prompts that begin alike: the least recently used head goes
// when there is no room.
type cache struct {
	limit, held int
	heads       []Head // the most recently used last
}

// has is how many tokens of a head the engine holds.
func (c *cache) has(h Head) int {
	if c == nil || h.Family == 0 {
		return 0
	}
	if i := c.find(h.Family); i >= 0 {
		return min(c.heads[i].Tokens, h.Tokens)
	}
	return 0
}

func (c *cache) find(family int) int {
	return slices.IndexFunc(c.heads, func(h Head) bool { return h.Family == family })
}

// keep notes that the engine holds a head now.
func (c *cache) keep(h Head) {
	if c == nil || h.Family == 0 || h.Tokens > c.limit {
		return
	}
	if i := c.find(h.Family); i >= 0 {
		h.Tokens = max(h.Tokens, c.heads[i].Tokens)
		c.held -= c.heads[i].Tokens
		c.heads = slices.Delete(c.heads, i, i+1)
	}
	c.heads = append(c.heads, h)
	c.held += h.Tokens
	drop := 0
	for c.held > c.limit {
		c.held -= c.heads[drop].Tokens
		drop++
	}
	c.heads = slices.Delete(c.heads, 0, drop)
}

// head of an arrival. The last token of a prompt is computed always.
func (c *Config) head(arrival int) Head {
	if arrival >= len(c.Heads) {
		return Head{}
	}
	h := c.Heads[arrival]
	h.Tokens = max(0, min(h.Tokens, c.Arrivals[arrival].Input-1))
	return h
}

// headChunk is how many tokens one hash of a head stands for.
const headChunk = 128

// chain is what the router knows a head by.
func (w *world) chain(h Head) prefix.Chain {
	n := h.Tokens / headChunk
	w.hashes = slices.Grow(w.hashes[:0], n)[:n]
	for i := range w.hashes {
		w.hashes[i] = draw(uint64(h.Family), i, 0)
	}
	return w.hashes
}

// believed is what the router expects each engine to hold of a prompt, from what it sent there
// and how far that was right lately; nil when none holds any. It stands until the next call.
func (w *world) believed(j *job) []int {
	if w.c.PrefixTokens == 0 || j.head.Family == 0 {
		return nil
	}
	c := w.chain(j.head)
	w.cached = slices.Grow(w.cached[:0], len(w.engines))[:len(w.engines)]
	most := 0
	for i, e := range w.engines {
		w.cached[i] = int(e.belief.Trust() * float64(headChunk*e.belief.Match(c)))
		most = max(most, w.cached[i])
	}
	if most == 0 {
		return nil
	}
	return w.cached
}

// sent is how many tokens of a prompt the engine was sent before, as far as the router knows.
func (w *world) sent(j *job) int {
	if w.c.PrefixTokens == 0 || j.head.Family == 0 {
		return 0
	}
	return headChunk * j.p.belief.Match(w.chain(j.head))
}

// shown settles what a prefill told of the engine's cache.
func (w *world) shown(j *job) {
	if j.p.cache == nil || j.head.Family == 0 {
		return
	}
	j.p.cache.keep(j.head)
	j.p.belief.Told(w.chain(j.head), j.sent, j.hit, 2*headChunk, j.hit/headChunk)
}

// kept notes that an engine has answered a prompt, and has it.
func (w *world) kept(e *engine, j *job) {
	if e.cache != nil && j.head.Family != 0 {
		e.cache.keep(j.head)
		e.belief.Add(w.chain(j.head))
	}
}

// warm is what an engine needs for a prompt of which it holds the first tokens.
func (e *engine) warm(j *job) float64 {
	if j.hit == 0 {
		return e.model.prefill(j.input, e.slow)
	}
	c := e.model.curve()
	return float64(e.slow * c.Warm(j.input, j.hit))
}

// look up what the engine holds of the prompt that it begins with.
func (e *engine) lookUp(j *job) {
	if e.cache == nil || j.begun {
		return
	}
	j.begun, j.hit = true, e.cache.has(j.head)
	j.done = j.hit
}

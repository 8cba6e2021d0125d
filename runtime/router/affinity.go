package router

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// promptHead is what a request's prompt shares with others. Nobody writes it once it is made.
type promptHead struct {
	chain prefix.Chain
	bytes int // of the whole prompt
}

// apart are the members of a body that decide what an engine makes of the prompt's head, or
// which cache it looks into.
var apart = []string{"cache_salt", "tools", "tool_choice", "functions", "documents", "response_format", "chat_template", "chat_template_kwargs",
	"add_special_tokens", "reasoning_effort", "mm_processor_kwargs", "lora_path", "extra_key"}

// uncached are members with which the head of the prompt is not what the client sent, or is
// computed although the engine has it.
var uncached = []string{"truncate_prompt_tokens", "prompt_logprobs", "prompt_embeds", "echo"}

// shared is the prompt as engines may share it with others; nil where that cannot be told or
// the prompt is too short.
func (q *request) shared() *promptHead {
	if !q.r.set.PrefixAffinity || q.cont.goesOn() {
		return nil
	}
	if !q.chained {
		q.chained = true
		q.prompt = q.call.shared(q.r.hasher, q.r.set.Fleet.Model)
	}
	return q.prompt
}

func (c *call) shared(h prefix.Hasher, modelName string) *promptHead {
	v, ok := c.get(c.promptField())
	if !ok || c.foreign || c.several {
		return nil
	}
	for _, k := range uncached {
		if v, ok := c.get(k); ok && string(v) != "false" {
			return nil
		}
	}
	v = v[1 : len(v)-1] // the closing mark of a conversation moves as it grows
	parts := make([][]byte, 0, 2+len(apart))
	parts = append(parts, []byte(modelName), []byte(c.path()))
	for _, k := range apart {
		p, _ := c.get(k)
		parts = append(parts, p)
	}
	chain := h.Chain(v, parts...)
	if len(chain) == 0 {
		return nil
	}
	return &promptHead{chain, len(v)}
}

// tokens of a prompt that so many chunks stand for, in whole blocks. The last token of a prompt
// is never among them: it is computed always.
func (p *promptHead) tokens(chunks, input, block int) int {
	n := min(int(int64(input)*int64(chunks*prefix.Chunk)/int64(p.bytes)), input-1)
	return max(0, n-n%max(1, block))
}

// chunks that so many tokens of the prompt cover whole.
func (p *promptHead) chunks(tokens, input int) int {
	return int(int64(tokens) * int64(p.bytes) / int64(max(1, input)) / prefix.Chunk)
}

// unknownChunks an engine is believed to hold when nobody knows the size of its cache.
const unknownChunks = 1 << 14

// prefixLimit is how many chunks of prompts the cache of an engine can hold.
func prefixLimit(tokens int, charsPerToken float64) int {
	if tokens <= 0 {
		return unknownChunks
	}
	return int(min(float64(tokens)*charsPerToken/prefix.Chunk, prefix.MaxLimit))
}

// believed is what each engine is expected to hold of a prompt of input tokens, by what it was
// sent and by how far that was right lately; nil when none holds any. It stands until the next
// call, in the owner's goroutine.
func (o *owner) believed(p *promptHead, input int) []int {
	if p == nil {
		return nil
	}
	o.cached = slices.Grow(o.cached[:0], len(o.nodes))[:len(o.nodes)]
	most := 0
	for i, n := range o.nodes {
		o.cached[i] = int(n.prefixes.Trust() * float64(p.tokens(n.prefixes.Match(p.chain), input, n.facts.blockSize)))
		most = max(most, o.cached[i])
	}
	if most == 0 {
		return nil
	}
	return o.cached
}

// most is the most that any engine is believed to hold which may prefill: what the others hold saves
// no work.
func (o *owner) most(held []int) (most int) {
	for i, h := range held {
		if o.may(o.nodes[i], model.Prefill) {
			most = max(most, h)
		}
	}
	return most
}

// rested describes a placement that rested on cached tokens, and where it would have gone
// without them; nil for any other.
func (o *owner) rested(d *sched.Decision, s *model.Snapshot, r model.Request, now float64, first bool) *journal.CachePlacement {
	if d.Cached == 0 || o.journal == nil {
		return nil
	}
	i := slices.IndexFunc(s.Engines, func(e model.EngineView) bool { return e.ID == d.Prefill })
	p := &journal.CachePlacement{Placed: d.Prefill, Cached: d.Cached, Predicted: d.Own, Cold: s.Engines[i].Prefill(r.Input)}
	r.Cached = nil
	cold := sched.Place
	if first {
		cold = sched.Admit
	}
	if c := cold(s, &r, now, &o.cold); c.Placed {
		p.ColdChoice = ptr(c.Prefill)
	}
	return p
}

// rests notes the prompt of a claim, and how much of it its prefill engine was sent before.
func (l *claim) rests(p *promptHead) {
	if l.prompt = p; p != nil {
		l.given = p.tokens(l.p.prefixes.Match(p.chain), l.input, l.p.facts.blockSize)
	}
}

// holds notes that an engine has the prompt of a claim in its cache now.
func (o *owner) holds(n *node, l *claim) {
	if l.prompt != nil && n.cacheLife == l.cacheLife(n) {
		n.prefixes.Add(l.prompt.chain)
	}
}

// cacheLife of an engine when the claim was made: what it did before a later one is lost.
func (l *claim) cacheLife(n *node) int {
	if n == l.p {
		return l.lifeP
	}
	return l.lifeD
}

// forget drops what an engine is believed to hold: its process is another one, or may be.
func (n *node) forget() {
	n.cacheLife++
	n.prefixes.Clear()
}

// cachedIn reads from the answer of a prefill leg what the engine's cache held of the prompt; -1
// where it does not tell.
func cachedIn(answer []byte) int {
	told := -1
	note := func(b []byte) {
		if c, ok := readChunk(b); ok && c.usage != nil {
			told = max(told, c.usage.Cached)
		}
	}
	var s splitter
	s.add(answer)
	for e := s.next(); e != nil; e = s.next() {
		_, b := parts(e)
		note(b)
	}
	return told
}

// shown compares what an engine says that it had of the prompt it prefilled with what it was
// sent before. One that does not tell (-1) has the prompt now.
func (o *owner) shown(l *claim, had int) {
	n, p := l.p, l.prompt
	if p == nil || n.cacheLife != l.lifeP {
		return
	}
	if had < 0 {
		n.prefixes.Add(p.chain)
		return
	}
	had = min(had, l.input)
	n.believed += l.given
	n.confirmed += min(had, l.given)
	n.prefixes.Told(p.chain, l.given, had, 2*p.tokens(1, l.input, 1), p.chunks(had, l.input))
}

package core

// pool holds the KV blocks. A block that nobody holds stays readable, with its content and its
// place in the prefix cache, until it is given out again: so do stale handoffs.
type pool struct {
	size   int // tokens of a block
	blocks []block
	free   int
	byHash map[uint64]int
	cache  bool
}

// block 0 is the sentinel of the free list, oldest first, and never given out.
type block struct {
	refs       int
	hash       uint64
	hashed     bool
	prev, next int
	tokens     []int32
}

func newPool(count, size int, cache bool) *pool {
	p := &pool{size: size, blocks: make([]block, count), byHash: map[uint64]int{}, cache: cache}
	for i := 1; i < count; i++ {
		p.pushBack(i)
	}
	return p
}

func (p *pool) pushBack(i int) {
	last := p.blocks[0].prev
	p.blocks[last].next, p.blocks[i].prev = i, last
	p.blocks[i].next, p.blocks[0].prev = 0, i
	p.free++
}

func (p *pool) unlink(i int) {
	b := &p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// take gives out the block that was freed first.
func (p *pool) take() (int, bool) {
	i := p.blocks[0].next
	if i == 0 {
		return 0, false
	}
	p.unlink(i)
	b := &p.blocks[i]
	if b.hashed {
		delete(p.byHash, b.hash)
		b.hashed = false
	}
	b.refs = 1
	if b.tokens == nil {
		b.tokens = make([]int32, p.size)
		for k := range b.tokens {
			b.tokens[k] = absent
		}
	}
	return i, true
}

// hold takes another reference.
func (p *pool) hold(i int) {
	b := &p.blocks[i]
	if b.refs == 0 {
		p.unlink(i)
	}
	b.refs++
}

// drop gives references back, the last block first, so that a prompt's head is evicted last.
func (p *pool) drop(ids []int) {
	for k := len(ids) - 1; k >= 0; k-- {
		b := &p.blocks[ids[k]]
		if b.refs--; b.refs == 0 {
			p.pushBack(ids[k])
		}
	}
}

// publish enters a full block in the prefix cache. The first holder of a hash keeps it.
func (p *pool) publish(i int, hash uint64) {
	if !p.cache {
		return
	}
	if _, taken := p.byHash[hash]; taken {
		return
	}
	b := &p.blocks[i]
	b.hash, b.hashed = hash, true
	p.byHash[hash] = i
}

// match holds and returns the cached blocks of a prompt's head, of at most limit blocks, and
// the hash that the next block extends.
func (p *pool) match(start uint64, prompt []int32, limit int) (ids []int, chain uint64) {
	chain = start
	for k := 0; p.cache && k < limit; k++ {
		h := chainHash(chain, prompt[k*p.size:(k+1)*p.size])
		i, ok := p.byHash[h]
		if !ok {
			break
		}
		p.hold(i)
		ids, chain = append(ids, i), h
	}
	return ids, chain
}

func chainHash(h uint64, ids []int32) uint64 {
	for _, id := range ids {
		h = fold(h, id)
	}
	return h
}

// fill writes the tokens read from a peer into a block; what is missing is marked so.
func (p *pool) fill(i int, tokens []int32) {
	b := p.blocks[i].tokens
	n := copy(b, tokens)
	for ; n < len(b); n++ {
		b[n] = absent
	}
}

// used is the share of blocks that somebody holds.
func (p *pool) used() float64 {
	all := len(p.blocks) - 1
	return float64(all-p.free) / float64(all)
}

// scramble overwrites every block that nobody holds.
func (p *pool) scramble() {
	for i := p.blocks[0].next; i != 0; i = p.blocks[i].next {
		b := &p.blocks[i]
		if b.hashed {
			delete(p.byHash, b.hash)
			b.hashed = false
		}
		for k := range b.tokens {
			b.tokens[k] = int32(k)
		}
	}
}

// forget empties the prefix cache.
func (p *pool) forget() {
	for _, i := range p.byHash {
		p.blocks[i].hashed = false
	}
	clear(p.byHash)
}

package prefix

// Index is what one engine is believed to hold. One goroutine uses it at a time. The zero
// value holds nothing until SetLimit.
type Index struct {
	at          map[uint64]int32 // slots by hash
	slots       []slot           // 0 is the head of the ring by use, newest after it
	free        []int32
	limit, most int
	doubt       float64 // 1 - Trust
}

type slot struct {
	hash       uint64
	prev, next int32
}

// MaxLimit is the most chunks of one engine, whatever it could hold.
const MaxLimit = 1 << 17

// SetLimit bounds the index to n chunks, at most MaxLimit, and forgets what is beyond.
func (x *Index) SetLimit(n int) {
	x.most = max(0, min(n, MaxLimit))
	x.bound(x.most)
}

func (x *Index) bound(n int) {
	x.limit = n
	for len(x.at) > x.limit {
		x.remove(x.slots[0].prev)
	}
}

// Len is how many chunks are held, Limit how many may be.
func (x *Index) Len() int { return len(x.at) }

// Limit is how many chunks may be held.
func (x *Index) Limit() int { return x.limit }

// Add notes that the engine has a prompt now; of one that is longer than the limit, its head.
func (x *Index) Add(c Chain) {
	c = c[:min(len(c), x.limit)]
	if len(c) == 0 {
		return
	}
	if x.at == nil {
		x.at, x.slots = map[uint64]int32{}, make([]slot, 1)
	}
	// From the end, so that of a chain its head is the newest.
	for i := len(c) - 1; i >= 0; i-- {
		if s, held := x.at[c[i]]; held {
			x.unlink(s)
			x.link(s)
			continue
		}
		if len(x.at) >= x.limit {
			x.remove(x.slots[0].prev)
		}
		s := x.slot()
		x.slots[s].hash = c[i]
		x.at[c[i]] = s
		x.link(s)
	}
}

// Match is how many leading chunks of a chain the engine is believed to hold.
func (x *Index) Match(c Chain) int {
	if len(x.at) == 0 {
		return 0
	}
	for i, h := range c {
		if _, held := x.at[h]; !held {
			return i
		}
	}
	return len(c)
}

// Trim forgets a chain from a chunk on: the engine has shown that it does not hold it.
func (x *Index) Trim(c Chain, from int) {
	for i := max(0, from); i < len(c); i++ {
		if s, held := x.at[c[i]]; held {
			x.remove(s)
		}
	}
}

// Shrink believes an engine to hold a quarter less: it had forgotten what was believed.
func (x *Index) Shrink() { x.bound(x.limit * 3 / 4) }

// Grow takes a little of that back, up to what SetLimit allows: the engine held what was
// believed, or more. It is slow, so that the limit stays near what the engine can hold.
func (x *Index) Grow() { x.limit = min(x.most, x.limit+x.limit/64+1) }

// judged is the weight of one prompt in the trust.
const judged = 1.0 / 8

// Judge notes that of so many tokens of a prompt that were believed, so many were held.
func (x *Index) Judge(believed, held int) {
	if believed > 0 {
		x.doubt += judged * (1 - float64(min(max(0, held), believed))/float64(believed) - x.doubt)
	}
}

// Told settles what a prefill showed of the engine's cache: it held so many tokens of a prompt of
// which it had been sent others before, within some for rounding. Of an engine that had clearly less
// the rest of the chain is forgotten, from a chunk on, and less is believed from now on: others
// use its cache too, or it has none.
func (x *Index) Told(c Chain, sent, held, rounding, from int) {
	x.Judge(sent, held)
	if held+max(rounding, sent/4) < sent {
		x.Trim(c, from)
		x.Shrink()
		return
	}
	if held > 0 {
		x.Grow()
	}
	x.Add(c)
}

// Trust is the part of what is believed that the engine has shown to hold lately, 1 at first.
// Prices rest on that part: on all of it, one engine that had lost many heads would get their
// prompts all the same, each priced as a short tail, and a queue that nobody saw.
func (x *Index) Trust() float64 { return 1 - x.doubt }

// Clear forgets everything, as a new process has, and starts with the whole limit.
func (x *Index) Clear() { *x = Index{limit: x.most, most: x.most} }

func (x *Index) slot() int32 {
	if n := len(x.free); n > 0 {
		s := x.free[n-1]
		x.free = x.free[:n-1]
		return s
	}
	x.slots = append(x.slots, slot{})
	return int32(len(x.slots) - 1)
}

func (x *Index) remove(s int32) {
	x.unlink(s)
	delete(x.at, x.slots[s].hash)
	x.free = append(x.free, s)
}

func (x *Index) link(s int32) {
	next := x.slots[0].next
	x.slots[s].prev, x.slots[s].next = 0, next
	x.slots[next].prev, x.slots[0].next = s, s
}

func (x *Index) unlink(s int32) {
	e := x.slots[s]
	x.slots[e.prev].next, x.slots[e.next].prev = e.next, e.prev
}

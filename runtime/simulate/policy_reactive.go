package simulate

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// reactive is a router that places by costs in lexical order and then admits what it placed:
// the first token is priced with the median, without a learned correction and without a
// queue at the router; an answer needs a seat, room in the caches and an engine whose pace stays
// within the promise. The place to decode is settled when the prefill has ended. Its controller
// is the router's own without lending.
type reactive struct {
	book
	slots []float64 // when seats are free, a heap
	holds []hold    // of those in prefill
}

// hold is an answer to come: from when it may run, how many tokens, and its cache.
type hold struct {
	ready  float64
	left   int
	tokens int
}

func newReactive(_ *Config, b book) chooser {
	b.ctl.Params.Lends = false
	return &reactive{book: b}
}

func (a *reactive) place(f *fleet, r *model.Request) placement {
	p := f.lexPrefill(r.Input)
	d := f.lexDecode(r.Input, nil)
	if p < 0 || d < 0 {
		return placement{}
	}
	e := f.engines[p]
	own, budget := e.v.Prefill(r.Input), f.snap.Params.Budget()
	wait, _ := e.queued(f.now)
	ready := f.now + wait + own
	price := ready - r.Arrived + f.handoff
	if price > budget || !a.seated(f, r, ready, price) {
		return placement{}
	}
	return f.on(p, d, r)
}

func (a *reactive) settle(f *fleet, j *job) *engine { return f.settled(j) }

func (a *reactive) tick(f *fleet) []control.Move { return a.book.tick(f) }

// seated is the admission of the decode side. Seats of all decode engines are one pool, and a
// full batch sets the pace.
func (a *reactive) seated(f *fleet, r *model.Request, ready, price float64) bool {
	seats, room, step, n := 0, 0, 0.0, 0.0
	for _, e := range f.engines {
		if !e.v.Live || e.v.Role != model.Decode {
			continue
		}
		c := &e.v.Curve
		requests, tokens := e.resident(f.now)
		share := float64(tokens+r.Input) / float64(requests+1)
		full := min(float64(c.MaxRequests)*share, float64(c.TokenLimit()))
		seats, room, n = seats+c.MaxRequests, room+c.TokenLimit(), n+1
		step += c.Interval(c.MaxRequests, int(full))
	}
	if n == 0 {
		return true
	}
	step /= n
	start, held := a.start(f, seats, ready, step)
	if wait := start - ready; wait > 0 && price+wait > f.snap.Params.Budget() {
		return false
	}
	if held > 0 && held+r.Input+r.Expected > room {
		return false
	}
	return paced(f, r, start, step)
}

// start is when a seat is free for an answer that may run from ready on, and the cache that
// others hold by then: residents first, then those that wait for a seat, then those in prefill
// by their expected end.
func (a *reactive) start(f *fleet, seats int, ready, step float64) (at float64, held int) {
	a.slots, a.holds = a.slots[:0], a.holds[:0]
	until := func(from float64, left int) float64 { return from + float64(float64(left)*step) }
	note := func(end float64, tokens int) {
		a.slots = append(a.slots, end)
		if end > ready {
			held += tokens
		}
	}
	for _, e := range f.engines {
		if e.window != nil {
			e.window.each(f.now, func(r told) {
				switch {
				case r.Ready > f.now:
					a.holds = append(a.holds, hold{r.Ready, r.Remaining, r.Tokens + r.Remaining})
				case r.first > 0 || r.here:
					note(until(f.now, r.Remaining), r.Tokens+r.Remaining)
				default:
					a.holds = append(a.holds, hold{f.now, r.Remaining, r.Tokens + r.Remaining})
				}
			})
			continue
		}
		steps := e.stepsBy(f.now)
		for _, j := range e.batch {
			note(until(f.now, e.due(j, steps)), j.input+j.told)
		}
		for _, j := range e.join.all() {
			a.holds = append(a.holds, hold{f.now, j.told, j.input + j.told})
		}
		end := f.now
		for _, j := range e.prefills.all() {
			end += j.own
			a.holds = append(a.holds, hold{end, j.told, j.input + j.told})
		}
	}
	if len(a.slots)+len(a.holds) < seats { // there is a seat for everybody
		for _, h := range a.holds {
			if h.ready <= ready && until(h.ready, h.left) > ready {
				held += h.tokens
			}
		}
		return ready, held
	}
	for len(a.slots) < seats {
		a.slots = append(a.slots, f.now)
	}
	slices.Sort(a.slots) // a sorted list is a heap
	// Residents of engines that have left the role hold no seat of it: of more residents than
	// seats, the first to end leave none.
	a.slots = slices.Delete(a.slots, 0, len(a.slots)-seats)
	slices.SortStableFunc(a.holds, func(x, y hold) int {
		switch {
		case x.ready < y.ready:
			return -1
		case x.ready > y.ready:
			return 1
		}
		return 0
	})
	for _, h := range a.holds {
		if h.ready > ready {
			continue
		}
		from := math.Max(h.ready, a.slots[0])
		end := until(from, h.left)
		a.take(end)
		if from <= ready && end > ready {
			held += h.tokens
		}
	}
	return math.Max(ready, a.slots[0]), held
}

// take gives the first free seat away until end.
func (a *reactive) take(end float64) {
	s := a.slots
	i := 0
	for {
		c := 2*i + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1] < s[c] {
			c++
		}
		if s[c] >= end {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = end
}

// paced reports whether some decode engine keeps its pace with the request and those residents
// that will not have left, or none would even if it were idle.
func paced(f *fleet, r *model.Request, start, step float64) bool {
	tpot, hopeless := f.snap.Params.TPOT, true
	for _, e := range f.engines {
		if !e.v.Live || e.v.Role != model.Decode {
			continue
		}
		hopeless = hopeless && float64(r.Input) > mostTokens(e.v, tpot, 1)
		requests, tokens, steps := 0, 0, e.stepsBy(f.now)
		if e.window != nil {
			e.window.each(f.now, func(r told) {
				if r.Ready <= f.now && f.now+float64(float64(r.Remaining)*step) > start {
					requests, tokens = requests+1, tokens+r.Tokens
				}
			})
			if float64(tokens+r.Input) <= mostTokens(e.v, tpot, requests+1) {
				return true
			}
			continue
		}
		for _, j := range e.batch {
			if f.now+float64(float64(e.due(j, steps))*step) > start {
				requests, tokens = requests+1, tokens+j.input+j.output-(j.leaves-steps)
			}
		}
		for _, j := range e.join.all() {
			if f.now+float64(float64(j.told)*step) > start {
				requests, tokens = requests+1, tokens+j.input
			}
		}
		if float64(tokens+r.Input) <= mostTokens(e.v, tpot, requests+1) {
			return true
		}
	}
	return hopeless
}

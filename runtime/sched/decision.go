// Package sched decides admission and placement.
//
// It promises pure functions: the same snapshot, request and moment give the same
// decision, which carries every engine that was looked at with its part of the cost or the
// reason it was dropped. Cost and admission price use the same terms, so nobody is refused
// while a pair within the promise exists. It refuses to look at a clock, a random source or
// the order of a map. With a Scratch it allocates nothing.
package sched

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Parts are the terms of a pair's cost, in seconds. Own delay and the delay caused to
// requests that are already there weigh the same.
type Parts struct {
	Queue   float64 `json:"queue,omitempty"`   // prefill work ahead on P
	Prefill float64 `json:"prefill,omitempty"` // the prompt's own prefill
	Stall   float64 `json:"stall,omitempty"`   // the prefill's delay to decode residents of P
	Handoff float64 `json:"handoff,omitempty"` // KV transfer, if P and D differ
	Overlap float64 `json:"overlap,omitempty"` // prefill work still on D
	Decode  float64 `json:"decode,omitempty"`  // the answer's own tokens
	Slow    float64 `json:"slow,omitempty"`    // the delay to the residents of D
	Spread  float64 `json:"spread,omitempty"`  // what an emptier batch on D costs the fleet
	Penalty float64 `json:"penalty,omitempty"` // probation
}

// Total is the cost of the pair.
func (p Parts) Total() float64 {
	return p.Queue + p.Prefill + p.Stall + p.Handoff + p.Overlap + p.Decode + p.Slow + p.Spread + p.Penalty
}

func (p Parts) plus(q Parts) Parts {
	return Parts{p.Queue + q.Queue, p.Prefill + q.Prefill, p.Stall + q.Stall, p.Handoff + q.Handoff,
		p.Overlap + q.Overlap, p.Decode + q.Decode, p.Slow + q.Slow, p.Spread + q.Spread, p.Penalty + q.Penalty}
}

// Side is one engine that was looked at for one phase. The cost of a pair is the sum of its
// sides' costs, and its price the sum of their prices. What a decode engine costs only
// beside another prefill engine (the transfer, the prefill work still on it, its probation) is
// in its parts; a pair of one engine does not pay it.
type Side struct {
	Engine string  `json:"iid"`
	Parts  Parts   `json:"parts"`
	Cost   float64 `json:"cost"`
	// Price is what this side adds to the projected time to the first token, Interval the
	// projected seconds between tokens (decode): what admission compares with the promise.
	Price    float64 `json:"price"`
	Interval float64 `json:"interval,omitempty"`
	// Cached is how many tokens of the prompt the engine is believed to hold.
	Cached  int          `json:"cached,omitempty"`
	Dropped model.Reason `json:"dropped,omitempty"`

	index int     // in the snapshot
	taken int     // D: its residents
	seats int     // D: the most of them
	lot   uint64  // settles ties; 0 = not drawn
	micro int64   // cost in microseconds: costs within one are ties
	alone float64 // P: its price without a queue
	apart float64 // D: the share of its cost that a pair of one engine does not pay
	ahead float64 // D: the share of its price that a pair of one engine does not pay
	pace  float64 // D: seconds between tokens until the request comes
	from  float64 // D: in how many seconds its batch is thin enough, at the soonest
	tight bool    // D: full now, so that its room depends on when the request comes
}

// Decision is the answer to one request. Exactly one of Placed and Refused holds.
type Decision struct {
	Placed  bool    `json:"placed"`
	Prefill string  `json:"p,omitempty"`
	Decode  string  `json:"d,omitempty"`
	Parts   Parts   `json:"parts"`
	Price   float64 `json:"price"` // projected time to the first token since arrival
	Elapsed float64 `json:"elapsed"`
	Own     float64 `json:"own"` // predicted prefill on the chosen engine
	// Cached is how many tokens of the prompt the chosen prefill engine is believed to hold,
	// and CachedDecode the decode engine.
	Cached       int          `json:"cached,omitempty"`
	CachedDecode int          `json:"cached_decode,omitempty"`
	Refused      model.Reason `json:"refused,omitempty"`
	// RetryAfter is a whole number of seconds; 0 = trying again does not help.
	RetryAfter int `json:"retry_after,omitempty"`
	// OverBudget means placed although no pair was within the promise (open mode or a retry).
	OverBudget bool `json:"over_budget,omitempty"`
	// Prefills and Decodes are all engines that were looked at. They live in the Scratch of
	// the call until its next use.
	Prefills []Side `json:"prefills"`
	Decodes  []Side `json:"decodes"`
}

// Split reports whether the two phases run on different engines.
func (d Decision) Split() bool { return d.Prefill != d.Decode }

// Keep returns the decision with memory of its own.
func (d Decision) Keep() Decision {
	d.Prefills, d.Decodes = slices.Clone(d.Prefills), slices.Clone(d.Decodes)
	return d
}

// Scratch is memory that decisions reuse. The zero value is ready; one goroutine uses it at a
// time.
type Scratch struct{ prefills, decodes []Side }

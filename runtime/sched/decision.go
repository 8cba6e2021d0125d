// Package sched decides admission and placement.
//
// It promises pure functions: the same snapshot, request and moment give the same
// decision, which carries every candidate with its cost parts or the reason it was
// dropped. Cost and admission price use the same terms, so nobody is refused while a
// candidate within the promise exists. It refuses to look at a clock, a random source or
// the order of a map.
package sched

import "github.com/narwhal-fleet/narwhal/runtime/model"

// Parts are the terms of a pair's cost, in seconds. Own delay and the delay caused to
// requests that are already there weigh the same.
type Parts struct {
	Queue   float64 `json:"queue"`             // prefill work ahead on P
	Prefill float64 `json:"prefill"`           // the prompt's own prefill
	Stall   float64 `json:"stall,omitempty"`   // the prefill's delay to decode residents of P
	Handoff float64 `json:"handoff,omitempty"` // KV transfer, if P and D differ
	Overlap float64 `json:"overlap,omitempty"` // prefill work still on D
	Decode  float64 `json:"decode"`            // the answer's own tokens
	Slow    float64 `json:"slow,omitempty"`    // the delay to the residents of D
	Penalty float64 `json:"penalty,omitempty"` // probation
}

// Total is the cost of the pair.
func (p Parts) Total() float64 {
	return p.Queue + p.Prefill + p.Stall + p.Handoff + p.Overlap + p.Decode + p.Slow + p.Penalty
}

// Candidate is one pair that was looked at.
type Candidate struct {
	Prefill string  `json:"p"`
	Decode  string  `json:"d"`
	Parts   Parts   `json:"parts"`
	Cost    float64 `json:"cost"`
	// Price is the projected time to first token since arrival; Interval the projected
	// seconds between tokens. Both are what admission compares with the promise.
	Price    float64      `json:"price"`
	Interval float64      `json:"interval"`
	Dropped  model.Reason `json:"dropped,omitempty"`
}

// Decision is the answer to one request. Exactly one of Placed and Refused holds.
type Decision struct {
	Placed  bool         `json:"placed"`
	Prefill string       `json:"p,omitempty"`
	Decode  string       `json:"d,omitempty"`
	Parts   Parts        `json:"parts"`
	Price   float64      `json:"price"`
	Elapsed float64      `json:"elapsed"`
	Own     float64      `json:"own"` // predicted prefill on the chosen engine
	Refused model.Reason `json:"refused,omitempty"`
	// RetryAfter is a whole number of seconds; 0 = trying again does not help.
	RetryAfter int `json:"retry_after,omitempty"`
	// OverBudget means placed although no candidate was within the promise (open mode
	// or a retry).
	OverBudget bool        `json:"over_budget,omitempty"`
	Candidates []Candidate `json:"candidates"`
}

// Split reports whether the two phases run on different engines.
func (d Decision) Split() bool { return d.Prefill != d.Decode }

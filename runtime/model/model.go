// Package model holds the values that the pure core shares: what a fleet looks like at
// one moment, what a request asks for, and the reasons a decision can carry.
//
// It promises plain values without behaviour that waits, and refuses to hold anything
// that changes behind a reader: a Snapshot is never written after it was published.
//
// Times are seconds on one monotonic clock (the router's), lengths are tokens.
package model

import "github.com/narwhal-fleet/narwhal/runtime/profile"

// Role is the label that says which phase an engine serves.
type Role string

// Roles.
const (
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// Other returns the opposite role.
func (r Role) Other() Role {
	if r == Prefill {
		return Decode
	}
	return Prefill
}

// Params are the promises and limits that decisions are made against.
type Params struct {
	TTFT   float64 `json:"ttft_s"`
	TPOT   float64 `json:"tpot_s"`
	Margin float64 `json:"margin"` // share of TTFT that a price may exceed it by
	// Open records prices and refuses nobody for being late.
	Open bool `json:"open"`
	// Lend is the share of TTFT from which decode engines take prefills that their residents
	// can bear; 0 = they never do.
	Lend float64 `json:"lend,omitempty"`
	// FixedRoles means that a role is a state of the engine: no engine stands in for the other role.
	FixedRoles bool `json:"fixed_roles,omitempty"`
}

// Budget is the largest price that is admitted, in seconds.
func (p Params) Budget() float64 { return p.TTFT * (1 + p.Margin) }

// EngineView is one engine at the moment of a snapshot.
type EngineView struct {
	ID     string `json:"iid"`
	Role   Role   `json:"role"`
	Pinned bool   `json:"pinned,omitempty"`
	// Live means configured and neither ejected, draining nor quarantined.
	Live  bool          `json:"live"`
	Curve profile.Curve `json:"-"`
	// Risk scales predicted prefill times to a pessimistic quantile of what was
	// observed; values below 1 count as 1.
	Risk float64 `json:"risk,omitempty"`
	// PrefillFree is when the prefill work already given to the engine is expected
	// to end, on the clock of Snapshot.At.
	PrefillFree     float64 `json:"prefill_free,omitempty"`
	PrefillRequests int     `json:"prefill_requests,omitempty"`
	DecodeRequests  int     `json:"decode_requests,omitempty"`
	DecodeTokens    int     `json:"decode_tokens,omitempty"` // resident KV: prompts and delivered output
	// ComingRequests and ComingTokens are of those among them whose prompts are still prefilled.
	ComingRequests int `json:"coming_requests,omitempty"`
	ComingTokens   int `json:"coming_tokens,omitempty"`
	// Held is the KV, in tokens, of prefilled prompts that no decode engine has read yet.
	Held int `json:"held,omitempty"`
	// DecodeRemaining is how many tokens the residents are still expected to make, in all.
	DecodeRemaining int `json:"decode_remaining,omitempty"`
	// Later answers for the residents, those still prefilling elsewhere included; nil = only the
	// sums are known.
	Later Later `json:"-"`
	// DecodeSeats is the attested sequence limit; 0 = unknown.
	DecodeSeats int `json:"decode_seats,omitempty"`
	// Correction is observed over predicted token gap; 0 counts as 1.
	Correction float64 `json:"correction,omitempty"`
	// PrefillCorrection is observed over predicted prefill time; 0 counts as 1.
	PrefillCorrection float64 `json:"prefill_correction,omitempty"`
	// Gap is the observed mean token gap of the last closed interval; 0 = none.
	Gap float64 `json:"gap_s,omitempty"`
	// RoleSince is when the engine got its role.
	RoleSince float64 `json:"role_since,omitempty"`
	// Penalty is added to the cost of an engine on probation, in seconds.
	Penalty float64 `json:"penalty,omitempty"`
}

// Later projects what the residents of an engine take, and what they can bear.
type Later interface {
	// Occupied returns seats and KV tokens in use at a moment, with interval seconds
	// between tokens: who has not started by then, or has ended, takes none.
	Occupied(now, at, interval float64) (requests, tokens int)
	// Slack returns the seconds that the engine may stand still from now on, beyond the prefill
	// work it has, before the first of its residents breaks its promise.
	Slack(now float64, p *Params) float64
}

// PrefillEnd is when a prefill is expected to end that was placed at a moment, behind a queue and with
// a time of its own as they were priced then, and is now expected to take another time: the queue is
// taken to be off by the same share. All in seconds.
func PrefillEnd(at, queue, own, takes float64) float64 {
	if own <= 0 {
		return at + queue
	}
	return at + (queue+own)*takes/own
}

// Resident is one request that holds, or will hold, a decode seat.
type Resident struct {
	Ready     float64 `json:"ready,omitempty"` // when its prefill is expected to end; 0 = it decodes
	Tokens    int     `json:"tokens"`          // KV that it holds
	Remaining int     `json:"remaining"`       // tokens it is expected to make yet
	// Sequences that it decodes at once; 0 = 1.
	Sequences int `json:"sequences,omitempty"`
}

// Occupied is Later's answer, from the sums where there is no Later.
func (e *EngineView) Occupied(now, at, interval float64) (requests, tokens int) {
	if e.Later == nil {
		return e.DecodeRequests, e.DecodeTokens
	}
	return e.Later.Occupied(now, at, interval)
}

// Seats is how many seats it holds of a batch.
func (r Resident) Seats() int { return max(1, r.Sequences) }

// Takes is what one resident takes at a later moment, as in Later.
func (r Resident) Takes(now, at, interval float64) (requests, tokens int) {
	start, n, each := max(now, r.Ready), 1, r.Remaining
	if r.Sequences > 1 {
		n = r.Sequences
		each = (r.Remaining + n - 1) / n
	}
	if start > at || start+float64(float64(each)*interval) <= at {
		return 0, 0
	}
	if interval > 0 {
		tokens = min(r.Remaining, n*min(each, int((at-start)/interval)))
	}
	return n, r.Tokens + tokens
}

// Backlog returns the seconds of prefill work ahead of a newcomer.
func (e *EngineView) Backlog(now float64) float64 { return max(0, e.PrefillFree-now) }

// Kappa returns the decode correction.
func (e *EngineView) Kappa() float64 {
	if e.Correction <= 0 {
		return 1
	}
	return e.Correction
}

// Prefill returns the seconds that a prompt of n tokens is expected to take alone.
func (e *EngineView) Prefill(n int) float64 {
	return float64(e.PrefillKappa() * e.Curve.Prefill(n))
}

// Warm is Prefill with the first cached tokens in the engine's prefix cache.
func (e *EngineView) Warm(n, cached int) float64 {
	return float64(e.PrefillKappa() * e.Curve.Warm(n, cached))
}

// PrefillKappa returns the prefill correction.
func (e *EngineView) PrefillKappa() float64 {
	if e.PrefillCorrection <= 0 {
		return 1
	}
	return e.PrefillCorrection
}

// Snapshot is the fleet at one moment. Engines keep the order of the fleet document.
type Snapshot struct {
	At     float64 `json:"at"`
	Params Params  `json:"params"`
	// Handoff is the mean delay of the KV transfer between two engines, in seconds.
	Handoff float64      `json:"handoff_s"`
	Engines []EngineView `json:"engines"`
	// Barred are pairs over which KV does not arrive although both engines are well: no request is split
	// over them.
	Barred []Edge `json:"barred,omitempty"`
}

// Edge is a prefill engine and the decode engine that reads its KV, as indices of a snapshot's engines.
type Edge struct {
	Prefill int `json:"p"`
	Decode  int `json:"d"`
}

// Request is what placement needs to know of one attempt.
type Request struct {
	ID      string  `json:"rid"`
	Arrived float64 `json:"arrived"`
	Input   int     `json:"input"`
	// Expected is how many tokens the answer is expected to have, all sequences together; at least 1.
	Expected int `json:"expected"`
	// Sequences that are decoded at once, each in a seat; 0 = 1.
	Sequences int `json:"sequences,omitempty"`
	// Unsplit asks for both phases on one engine.
	Unsplit bool `json:"unsplit,omitempty"`
	// Cached is how many tokens of the prompt each engine of the snapshot is believed to hold,
	// in its order and fewer than Input; nil = none of them any.
	Cached []int `json:"cached,omitempty"`
	// AvoidPrefill and AvoidDecode name engines that failed this request before.
	AvoidPrefill []string `json:"avoid_prefill,omitempty"`
	AvoidDecode  []string `json:"avoid_decode,omitempty"`
}

// Seats is how many seats it takes of a batch.
func (r *Request) Seats() int { return max(1, r.Sequences) }

// Held is how many tokens of the prompt the engine at an index of the snapshot is believed to hold.
func (r *Request) Held(index int) int {
	if index >= len(r.Cached) {
		return 0
	}
	return r.Cached[index]
}

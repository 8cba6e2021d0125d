package router

import "math"

// Of the retry budget: over how long it looks back, and in how many parts.
const (
	budgetSpan  = 10.0 // seconds
	budgetParts = 10
)

// legsOfRequest is how many legs a request has, each of which may need another try.
const legsOfRequest = 2

// budget bounds the retries of one cause to a share of the requests that were sent lately, so
// that a failing fleet is not sent twice its traffic. Causes have their own: a storm of one
// takes nothing from another. Small traffic has a floor. It belongs to the owner.
type budget struct {
	share float64 // of the requests
	floor int     // retries of a cause within budgetSpan, whatever the traffic; 0 = no retries
	parts [budgetParts]budgetPart
}

// budgetPart is one part of the time that is looked back over.
type budgetPart struct {
	number   int64 // since the router's start
	requests int
	taken    map[string]int // by cause
}

// grant is one retry that was taken from the budget; the zero value is none.
type grant struct {
	cause string
	part  int64
}

// newBudget reads the two settings of the contract: retry_budget is the floor, retry_replenish
// the share of legs.
func newBudget(retryBudget int, retryReplenish float64) budget {
	return budget{share: legsOfRequest * retryReplenish, floor: retryBudget}
}

func partAt(now float64) int64 { return int64(math.Floor(now * budgetParts / budgetSpan)) }

// at is the part of this moment.
func (b *budget) at(now float64) *budgetPart {
	k := partAt(now)
	p := &b.parts[k%budgetParts]
	if p.number != k || p.taken == nil {
		*p = budgetPart{number: k, taken: map[string]int{}}
	}
	return p
}

// sent notes the first attempt of a request.
func (b *budget) sent(now float64) { b.at(now).requests++ }

// take grants one retry if the cause has one left.
func (b *budget) take(cause string, now float64) (grant, bool) {
	if b.left(cause, now) < 1 {
		return grant{}, false
	}
	p := b.at(now)
	p.taken[cause]++
	return grant{cause, p.number}, true
}

// giveBack returns a grant that was not used.
func (b *budget) giveBack(g grant) {
	if p := &b.parts[g.part%budgetParts]; p.number == g.part && p.taken[g.cause] > 0 {
		p.taken[g.cause]--
	}
}

// left is how many retries a cause may take now.
func (b *budget) left(cause string, now float64) float64 {
	if b.floor == 0 {
		return 0
	}
	requests, taken := 0, 0
	b.recent(now, func(p *budgetPart) {
		requests += p.requests
		taken += p.taken[cause]
	})
	return max(float64(b.floor), b.share*float64(requests)) - float64(taken)
}

// least is what the cause has left that has least.
func (b *budget) least(now float64) float64 {
	least := b.left("", now)
	b.recent(now, func(p *budgetPart) {
		for cause := range p.taken {
			least = min(least, b.left(cause, now))
		}
	})
	return max(0, least)
}

// recent calls f for each part within the span.
func (b *budget) recent(now float64, f func(*budgetPart)) {
	oldest := partAt(now) - budgetParts + 1
	for i := range b.parts {
		if p := &b.parts[i]; p.taken != nil && p.number >= oldest {
			f(p)
		}
	}
}

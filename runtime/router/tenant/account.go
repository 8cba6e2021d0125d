package tenant

import "math"

// Times of an account, seconds.
const (
	// memory is how long the demand of a tenant counts at most. It is kept in two halves:
	// the one that runs and the one before it.
	memory = 5.0
	half   = memory / 2
)

// account is what the limiter keeps of one tenant. It outlives reloads that keep the name.
type account struct {
	t    *Tenant
	live bool // the table in force has the tenant

	inflight int
	level    float64 // tokens in the bucket; below 0 after a request that took more than it said
	filledAt float64

	// Demand for seats: the most that ran or wanted to run at once in each half of the
	// memory, and how many of the running half were turned away and did not come back.
	cur, prev, missed int
	halfAt            float64

	n counters
}

type counters struct {
	admitted, finished uint64
	charged, used      float64 // tokens
	refused            [reasons]uint64
}

func (c *counters) add(o counters) {
	c.admitted += o.admitted
	c.finished += o.finished
	c.charged += o.charged
	c.used += o.used
	for r := range o.refused {
		c.refused[r] += o.refused[r]
	}
}

// metered reports whether the tenant has a bucket.
func (a *account) metered() bool { return a.t.Limits.TokensPerS > 0 }

// fill brings the bucket to now.
func (a *account) fill(now float64) {
	if a.metered() && now > a.filledAt {
		a.level = min(a.t.Limits.BurstTokens, a.level+(now-a.filledAt)*a.t.Limits.TokensPerS)
	}
	a.filledAt = now
}

// become gives the account another row of limits. A bucket that is new is full.
func (a *account) become(t *Tenant, now float64) {
	was := a.metered()
	a.fill(now)
	a.t, a.live = t, true
	if !was {
		a.level = t.Limits.BurstTokens
	}
	a.level = min(a.level, t.Limits.BurstTokens)
}

// slack forgives the rounding of a client that waited exactly as long as it was told.
const slack = 1e-6

// own judges a request by the tenant's own limits, of which none may be passed.
func (a *account) own(need, hold float64) (wait float64, why Reason) {
	wait, why = a.afford(0, need)
	if l := a.t.Limits; why != TooLarge && l.MaxInflight > 0 && a.inflight >= l.MaxInflight {
		return soon(hold, a.inflight), Inflight
	}
	return wait, why
}

// afford judges by the bucket a request that was charged something before.
func (a *account) afford(before, need float64) (wait float64, why Reason) {
	switch l := a.t.Limits; {
	case !a.metered():
		return 0, Admitted
	case before+need > l.BurstTokens:
		return 0, TooLarge
	case a.level+slack < need:
		return (need - a.level) / l.TokensPerS, Tokens
	}
	return 0, Admitted
}

// roll forgets demand that is too long ago.
func (a *account) roll(now float64) {
	switch age := now - a.halfAt; {
	case age < half:
		return
	case age < memory:
		a.prev, a.halfAt = a.cur, a.halfAt+half
	default:
		a.prev, a.halfAt = a.inflight, now
	}
	a.cur, a.missed = a.inflight, 0
}

// want is how many seats the tenant wanted at once lately; at least what it holds.
func (a *account) want() int {
	w := max(a.inflight, a.cur, a.prev)
	if m := a.t.Limits.MaxInflight; m > 0 {
		w = min(w, max(m, a.inflight))
	}
	return w
}

// unmet is how many more seats the tenant could use now.
func (a *account) unmet(now float64) int {
	if a.fill(now); a.metered() && a.level < 1 {
		return 0 // its bucket would turn it away
	}
	return a.want() - a.inflight
}

func (a *account) miss(most int) {
	a.missed = min(a.missed+1, most)
	a.cur = max(a.cur, a.inflight+a.missed)
}

func (a *account) seat() {
	a.inflight++
	a.missed = max(0, a.missed-1)
	a.cur = max(a.cur, a.inflight)
}

// Bounds of a time to come back for a seat, seconds. The upper one, rounded up to what a
// Retry-After header can say, is within the memory of the demand.
const (
	leastWait = 0.05
	mostWait  = memory / 4
)

// soon is when one of n requests that run hold seconds each is expected to end.
func soon(hold float64, n int) float64 {
	return math.Max(leastWait, math.Min(mostWait, hold/float64(max(1, n))))
}

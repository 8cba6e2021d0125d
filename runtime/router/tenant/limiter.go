package tenant

import (
	"cmp"
	"math"
	"slices"
)

// Limiter shares the seats of a router among its tenants. It is not safe for concurrent
// use: one goroutine owns it. Times are seconds of one clock; one that goes back counts
// as standing still.
type Limiter struct {
	total    int // seats; 0 = no limit
	now      float64
	inflight int
	hold     float64 // smoothed time that a request holds its seat
	byName   map[string]*account
	order    []*account // of the table in force, by weight, then name
	removed  counters   // of tenants that are no more, and of requests that named none
	draining int        // seats of removed tenants
}

// New makes a limiter of so many seats over all tenants (0 = as many as come) for a
// table; nil is Open.
func New(total int, t *Table) *Limiter {
	l := &Limiter{total: max(0, total), now: math.Inf(-1), hold: 1, byName: map[string]*account{}}
	l.Use(0, t)
	return l
}

// SetTotal changes the number of seats. Seats that are taken stay so.
func (l *Limiter) SetTotal(total int) { l.total = max(0, total) }

// Use puts a table in force; nil is Open. Tenants that it keeps, by name, keep their seats,
// buckets and counters. What requests of removed tenants hold is given back as they end.
func (l *Limiter) Use(now float64, t *Table) {
	if t == nil {
		t = Open()
	}
	now = l.tick(now)
	for _, a := range l.byName {
		a.live = false
	}
	l.order = l.order[:0]
	for _, x := range t.Tenants() {
		a := l.byName[x.Name]
		if a == nil {
			a = &account{t: &Tenant{}, filledAt: now, halfAt: now}
			l.byName[x.Name] = a
		}
		a.become(x, now)
		l.order = append(l.order, a)
	}
	slices.SortFunc(l.order, func(a, b *account) int {
		return cmp.Or(cmp.Compare(a.t.Limits.Weight, b.t.Limits.Weight), cmp.Compare(a.t.Name, b.t.Name))
	})
	l.draining = 0
	for _, a := range l.byName {
		if !a.live {
			l.draining += a.inflight
			l.forget(a)
		}
	}
}

// forget drops the account of a removed tenant that holds nothing, and keeps its counts.
func (l *Limiter) forget(a *account) {
	if !a.live && a.inflight == 0 {
		l.removed.add(a.n)
		delete(l.byName, a.t.Name)
	}
}

func (l *Limiter) tick(now float64) float64 {
	if now > l.now && !math.IsInf(now, 1) { // false for NaN
		l.now = now
	}
	return l.now
}

// Seat is what an admitted request holds until Done.
type Seat struct {
	a       *account
	at      float64
	charged float64 // to the bucket
	metered bool    // it was charged, be it nothing
	done    bool
}

// Admit asks for a seat for a request of so many tokens, prompt and expected output. It
// returns the seat, or nil, the reason, and in how many seconds to come back; 0 means that
// coming back does not help. Nothing but the tenant's demand is noted of a refusal.
func (l *Limiter) Admit(now float64, t *Tenant, tokens int) (s *Seat, retryAfter float64, why Reason) {
	now = l.tick(now)
	a := l.accountOf(t)
	if a == nil {
		l.removed.refused[Removed]++
		return nil, 0, Removed
	}
	a.fill(now)
	a.roll(now)
	need := amount(tokens)
	retryAfter, why = a.own(need, l.hold)
	if why == Admitted {
		retryAfter, why = l.contend(now, a)
	}
	if why != Admitted {
		a.n.refused[why]++
		return nil, retryAfter, why
	}
	a.seat()
	l.inflight++
	a.n.admitted++
	s = &Seat{a: a, at: now}
	s.charge(need)
	return s, 0, Admitted
}

func (s *Seat) charge(need float64) {
	s.a.n.charged += need
	if s.a.metered() {
		s.a.level -= need
		s.charged += need
		s.metered = true
	}
}

// Charge asks for more tokens for a request that has its seat: for a router that gives
// seats before it has read what a request wants, and then knows. On a refusal the seat
// stays, for Done. A seat that is nil or given back is Removed.
func (l *Limiter) Charge(now float64, s *Seat, tokens int) (retryAfter float64, why Reason) {
	if s == nil || s.done {
		return 0, Removed
	}
	now = l.tick(now)
	a, need := s.a, amount(tokens)
	a.fill(now)
	if retryAfter, why = a.afford(s.charged, need); why != Admitted {
		a.n.refused[why]++
		return retryAfter, why
	}
	s.charge(need)
	return 0, Admitted
}

func (l *Limiter) accountOf(t *Tenant) *account {
	if t == nil {
		return nil
	}
	a := l.byName[t.Name]
	if a == nil || !a.live {
		return nil
	}
	return a
}

// amount bounds a number of tokens that came from outside.
func amount(tokens int) float64 { return float64(min(max(0, tokens), int(maxRequest))) }

// Done gives a seat back and corrects the bucket by the tokens that the request really
// took, 0 if it never ran. A second Done of a seat, or one of nil, does nothing.
func (l *Limiter) Done(now float64, s *Seat, tokens int) {
	if s == nil || s.done {
		return
	}
	now = l.tick(now)
	s.done = true
	a := s.a
	a.fill(now)
	a.roll(now)
	a.inflight--
	l.inflight--
	a.n.finished++
	a.n.used += amount(tokens)
	if s.metered && a.metered() {
		a.level = min(a.t.Limits.BurstTokens, a.level+s.charged-amount(tokens))
	}
	const smooth = 0.1
	l.hold += smooth * (now - s.at - l.hold)
	if !a.live {
		l.draining--
		l.forget(a)
	}
}

package tenant

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever happens in whatever order: no limit is passed, no seat is lost, and a tenant
// within its share gets a seat that is free.
func TestLimiterProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := &machine{t: r, open: map[*Seat]string{}, charged: map[string]float64{}}
		m.total = rapid.IntRange(0, 12).Draw(r, "total")
		m.tab = drawTable(t, r)
		m.l = New(m.total, m.tab)
		r.Repeat(map[string]func(*rapid.T){"admit": m.admit, "done": m.done, "charge": m.charge, "reload": func(r *rapid.T) { m.reload(t, r) }, "total": m.resize, "": m.check})
	})
}

func drawTable(t testing.TB, r *rapid.T) *Table {
	var rows []string
	for i := range 4 {
		if !rapid.Bool().Draw(r, "present") {
			continue
		}
		row := fmt.Sprintf(`t%d "weight":%g,"max_inflight":%d`, i, rapid.SampledFrom([]float64{0.1, 0.3, 1, 2, 7}).Draw(r, "weight"), rapid.IntRange(0, 6).Draw(r, "max"))
		if rapid.Bool().Draw(r, "metered") {
			row += `,"tokens_per_s":50,"burst_tokens":100`
		}
		rows = append(rows, row)
	}
	return table(t, append(rows, "z")...)
}

type machine struct {
	t       *rapid.T
	l       *Limiter
	tab     *Table
	total   int
	now     float64
	open    map[*Seat]string
	order   []*Seat
	charged map[string]float64 // net of corrections, since the last reload
	since   float64            // of the last reload
}

func (m *machine) tick(r *rapid.T) {
	m.now += rapid.SampledFrom([]float64{0, 0, 0.01, 0.5, 2.6, 6}).Draw(r, "later")
}

func (m *machine) holds(name string) (n int) {
	for _, x := range m.open {
		if x == name {
			n++
		}
	}
	return n
}

func (m *machine) admit(r *rapid.T) {
	m.tick(r)
	x := rapid.SampledFrom(m.tab.Tenants()).Draw(r, "tenant")
	tokens := rapid.IntRange(0, 110).Draw(r, "tokens")
	held, all, within, wanted := m.holds(x.Name), len(m.open), m.within(x), m.othersWant(x)
	s, wait, why := m.l.Admit(m.now, x, tokens)
	l := x.Limits
	if wait < 0 || math.IsNaN(wait) || (wait == 0) != (why == Admitted || why == TooLarge) || (s != nil) != (why == Admitted) {
		r.Fatalf("wait %g, %s", wait, why)
	}
	free := m.total == 0 || all < m.total
	switch why {
	case Admitted:
		m.open[s] = x.Name
		m.order = append(m.order, s)
		m.charged[x.Name] += float64(tokens)
		if l.MaxInflight > 0 && held >= l.MaxInflight || !free {
			r.Fatalf("%s holds %d of %d, all hold %d of %d", x.Name, held, l.MaxInflight, all, m.total)
		}
		m.afforded(r, x.Name)
	case Share:
		if within || !free || !wanted {
			r.Fatalf("%s holds %d, all %d of %d; within its share %v, others want %v", x.Name, held, all, m.total, within, wanted)
		}
	case Full:
		if free {
			r.Fatalf("full with %d of %d", all, m.total)
		}
	case Inflight:
		if l.MaxInflight == 0 || held < l.MaxInflight {
			r.Fatalf("holds %d of %d", held, l.MaxInflight)
		}
	case Tokens, TooLarge:
		if l.TokensPerS == 0 || why == TooLarge && float64(tokens) <= l.BurstTokens {
			r.Fatalf("%s for %d tokens of %+v", why, tokens, l)
		}
	default:
		r.Fatalf("%s", why)
	}
}

// within applies the formula: seats × weight ÷ weights of those with demand.
func (m *machine) within(x *Tenant) bool {
	sum := x.Limits.Weight
	seats := m.total
	for _, s := range m.l.Stats(m.now) {
		if s.Tenant != x.Name && s.Want > 0 {
			sum += s.Weight
		}
		if s.Tenant == RemovedName {
			seats -= s.Inflight
		}
	}
	// Small shares are rounded up to one seat, at the cost of the large ones: less by one
	// for each of the others is a bound of that.
	return float64(m.holds(x.Name)+1) <= float64(seats)*x.Limits.Weight/sum-float64(len(m.tab.Tenants())-1)
}

func (m *machine) othersWant(x *Tenant) bool {
	for _, s := range m.l.Stats(m.now) {
		if s.Tenant != x.Name && s.Want > s.Inflight {
			return true
		}
	}
	return false
}

func (m *machine) done(r *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	m.tick(r)
	s := rapid.SampledFrom(m.order).Draw(r, "seat")
	took := rapid.IntRange(0, 200).Draw(r, "took")
	name, held := m.open[s]
	m.l.Done(m.now, s, took)
	if held && s.metered { // else it was given back before
		m.charged[name] += float64(took) - s.charged
	}
	delete(m.open, s)
}

func (m *machine) charge(r *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	m.tick(r)
	s := rapid.SampledFrom(m.order).Draw(r, "seat")
	tokens := rapid.IntRange(0, 110).Draw(r, "tokens")
	name, held := m.open[s]
	_, why := m.l.Charge(m.now, s, tokens)
	if (why == Removed) == held || !held && why == Admitted {
		r.Fatalf("seat held %v, %s", held, why)
	}
	if why != Admitted || !s.metered {
		return
	}
	m.charged[name] += float64(tokens)
	m.afforded(r, name)
}

// afforded holds what a tenant was charged against what its bucket ever held.
func (m *machine) afforded(r *rapid.T, name string) {
	for _, x := range m.tab.Tenants() {
		l := x.Limits
		if most := l.BurstTokens + l.TokensPerS*(m.now-m.since); x.Name == name && l.TokensPerS > 0 && m.charged[name] > most+2*slack {
			r.Fatalf("%s was charged %g of %g", name, m.charged[name], most)
		}
	}
}

func (m *machine) reload(t testing.TB, r *rapid.T) {
	m.tick(r)
	m.tab = drawTable(t, r)
	m.l.Use(m.now, m.tab)
	m.since, m.charged = m.now, map[string]float64{}
}

func (m *machine) resize(r *rapid.T) {
	m.total = rapid.IntRange(0, 12).Draw(r, "total")
	m.l.SetTotal(m.total)
}

func (m *machine) check(r *rapid.T) {
	sum := 0
	for _, s := range m.l.Stats(m.now) {
		sum += s.Inflight
		if s.Tenant != RemovedName && s.Inflight != m.holds(s.Tenant) || s.Admitted-s.Finished != uint64(s.Inflight) || s.Want < s.Inflight && s.Tenant != RemovedName {
			r.Fatalf("%+v, want %d in flight", s, m.holds(s.Tenant))
		}
		if strings.HasPrefix(s.Tenant, "t") && s.Bucket > s.TokensPerS*1e6 && s.TokensPerS > 0 {
			r.Fatalf("%+v", s)
		}
	}
	if sum != len(m.open) || m.l.Inflight() != sum {
		r.Fatalf("%d in flight, %d seats are held", sum, len(m.open))
	}
}

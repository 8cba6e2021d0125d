package tenant

import (
	"math"
	"testing"
)

// desk is a limiter with names for its tenants.
type desk struct {
	t *testing.T
	*Limiter
	tab *Table
	now float64
}

func newDesk(t *testing.T, total int, rows ...string) *desk {
	tab := table(t, rows...)
	return &desk{t: t, Limiter: New(total, tab), tab: tab}
}

func (d *desk) tenant(name string) *Tenant {
	for _, x := range d.tab.Tenants() {
		if x.Name == name {
			return x
		}
	}
	return nil
}

func (d *desk) ask(name string, tokens int) (*Seat, float64, Reason) {
	return d.Admit(d.now, d.tenant(name), tokens)
}

func (d *desk) take(name string, n int) []*Seat {
	d.t.Helper()
	var out []*Seat
	for range n {
		s, _, why := d.ask(name, 1)
		if why != Admitted {
			d.t.Fatalf("%s at %g: %s", name, d.now, why)
		}
		out = append(out, s)
	}
	return out
}

func (d *desk) refused(name string, want Reason) (wait float64) {
	d.t.Helper()
	s, wait, why := d.ask(name, 1)
	if why != want || s != nil {
		d.t.Fatalf("%s at %g: %s, want %s", name, d.now, why, want)
	}
	return wait
}

func (d *desk) row(name string) Stats {
	for _, s := range d.Stats(d.now) {
		if s.Tenant == name {
			return s
		}
	}
	d.t.Fatalf("no row of %s", name)
	return Stats{}
}

func TestInflightLimit(t *testing.T) {
	d := newDesk(t, 0, `a "max_inflight":2`, "b")
	s := d.take("a", 2)
	if w := d.refused("a", Inflight); w <= 0 || w > mostWait {
		t.Errorf("wait %g", w)
	}
	d.take("b", 50)
	d.Done(d.now, s[0], 1)
	d.Done(d.now, s[0], 1)
	d.take("a", 1)
	d.refused("a", Inflight)
}

func TestBucket(t *testing.T) {
	d := newDesk(t, 0, `a "tokens_per_s":10,"burst_tokens":100`)
	if _, wait, why := d.ask("a", 101); why != TooLarge || wait != 0 {
		t.Fatal(wait, why)
	}
	s, _, why := d.ask("a", 100)
	if why != Admitted {
		t.Fatal(why)
	}
	_, wait, why := d.ask("a", 30)
	if why != Tokens || wait != 3 {
		t.Fatal(wait, why)
	}
	d.now = 2.9 // 29 are there
	d.take("a", 1)
	d.now = 3.2
	if _, _, why := d.ask("a", 31); why != Admitted {
		t.Fatal(why)
	}
	// It took 20 more than it said: the tenant owes them.
	d.Done(d.now, s, 120)
	if _, wait, _ := d.ask("a", 1); math.Abs(wait-2.1) > 1e-9 {
		t.Fatalf("wait %g", wait)
	}
	d.now = 1000
	if b := d.row("a").Bucket; b != 100 {
		t.Fatalf("bucket %g", b)
	}
}

func TestUnusedTokensComeBack(t *testing.T) {
	d := newDesk(t, 0, `a "tokens_per_s":1,"burst_tokens":100`)
	s, _, _ := d.ask("a", 90)
	d.refused20(t)
	d.Done(d.now, s, 0)
	if s, _, why := d.ask("a", 100); s == nil {
		t.Fatal(why)
	}
}

func TestBucketNeverHoldsMoreThanItsBurst(t *testing.T) {
	d := newDesk(t, 0, `a "tokens_per_s":1,"burst_tokens":100`)
	s, _, _ := d.ask("a", 90)
	d.now = 50
	d.Done(d.now, s, 0)
	if _, _, why := d.ask("a", 100); why != Admitted {
		t.Fatal(why)
	}
	d.refused("a", Tokens)
}

func (d *desk) refused20(t *testing.T) {
	t.Helper()
	if _, wait, why := d.ask("a", 20); why != Tokens || wait != 10 {
		t.Fatal(wait, why)
	}
}

// A seat may be taken before the tokens are known.
func TestChargeAfterAdmit(t *testing.T) {
	d := newDesk(t, 0, `a "tokens_per_s":10,"burst_tokens":100`, "b")
	s, _, why := d.ask("a", 0)
	if why != Admitted {
		t.Fatal(why)
	}
	if wait, why := d.Charge(d.now, s, 101); why != TooLarge || wait != 0 {
		t.Fatal(wait, why)
	}
	if _, why := d.Charge(d.now, s, 60); why != Admitted {
		t.Fatal(why)
	}
	if _, why := d.Charge(d.now, s, 41); why != TooLarge { // 101 in all
		t.Fatal(why)
	}
	other, _, _ := d.ask("a", 0)
	if wait, why := d.Charge(d.now, other, 50); why != Tokens || wait != 1 {
		t.Fatal(wait, why)
	}
	d.Done(d.now, other, 0)
	d.Done(d.now, s, 30)
	if r := d.row("a"); r.Bucket != 70 || r.Charged != 60 || r.Used != 30 || r.Inflight != 0 || r.Refused(TooLarge) != 2 || r.Refused(Tokens) != 1 {
		t.Errorf("%+v", r)
	}
	if _, why := d.Charge(d.now, s, 1); why != Removed {
		t.Error(why)
	}
	free := d.take("b", 1)[0]
	if _, why := d.Charge(d.now, free, math.MaxInt); why != Admitted {
		t.Error(why)
	}
}

// What a seat took before the tenant had a bucket is not taken from that later.
func TestBucketThatComesWithAReload(t *testing.T) {
	d := newDesk(t, 0, "a")
	s, _, _ := d.ask("a", 500)
	d.tab = table(t, `a "tokens_per_s":10,"burst_tokens":100`)
	d.Use(d.now, d.tab)
	d.Done(d.now, s, 700)
	if b := d.row("a").Bucket; b != 100 {
		t.Errorf("bucket %g", b)
	}
}

func TestRefusalCostsNothing(t *testing.T) {
	d := newDesk(t, 1, `a "tokens_per_s":1,"burst_tokens":100`, "b")
	d.take("b", 1)
	for range 10 {
		if _, _, why := d.ask("a", 90); why != Full {
			t.Fatal(why)
		}
	}
	if r := d.row("a"); r.Bucket != 100 || r.Refused(Full) != 10 || r.Admitted != 0 || r.Charged != 0 {
		t.Errorf("%+v", r)
	}
}

func TestReloadKeepsSeatsBucketsAndCounts(t *testing.T) {
	d := newDesk(t, 10, `a "tokens_per_s":1,"burst_tokens":100`, `b "max_inflight":5`)
	a, _, _ := d.ask("a", 60)
	b := d.take("b", 3)
	old := d.tenant("b")
	d.tab = table(t, `a "tokens_per_s":2,"burst_tokens":50`, "c")
	d.Use(d.now, d.tab)
	if r := d.row("a"); r.Bucket != 40 || r.Inflight != 1 || r.Admitted != 1 {
		t.Errorf("a: %+v", r)
	}
	if r := d.row(RemovedName); r.Inflight != 3 || r.Admitted != 3 {
		t.Errorf("removed: %+v", r)
	}
	if _, _, why := d.Admit(d.now, old, 1); why != Removed {
		t.Error(why)
	}
	d.take("c", 6)
	d.refused("c", Full)
	for _, s := range b {
		d.Done(d.now, s, 7)
	}
	if r := d.row(RemovedName); r.Inflight != 0 || r.Finished != 3 || r.Used != 21 || r.Refused(Removed) != 1 || len(d.byName) != 2 {
		t.Errorf("removed: %+v, %d accounts", r, len(d.byName))
	}
	d.take("c", 3)
	d.Done(d.now, a, 1000)
	if r := d.row("a"); r.Bucket != 40+60-1000 {
		t.Errorf("a: %+v", r)
	}
}

func TestReturnedTenantHasItsSeats(t *testing.T) {
	d := newDesk(t, 10, `a "max_inflight":2`)
	s := d.take("a", 2)
	d.Use(0, table(t, "b"))
	d.Use(0, d.tab)
	d.refused("a", Inflight)
	d.Done(d.now, s[0], 1)
	d.take("a", 1)
	if d.draining != 0 {
		t.Error(d.draining)
	}
}

func TestOddInput(t *testing.T) {
	d := newDesk(t, 2, `a "tokens_per_s":1,"burst_tokens":10`)
	if _, _, why := d.Admit(0, nil, 1); why != Removed {
		t.Error(why)
	}
	d.Done(0, nil, 1)
	for i, now := range []float64{5, math.NaN(), math.Inf(1), -3, math.Inf(-1)} {
		s, _, why := d.Admit(now, d.tenant("a"), math.MinInt)
		if why != Admitted {
			t.Fatal(i, why)
		}
		d.Done(now, s, math.MinInt)
	}
	s, _, _ := d.ask("a", 1)
	d.Done(6, s, math.MaxInt)
	if r := d.row("a"); r.Inflight != 0 || r.Bucket != 11-maxRequest {
		t.Errorf("%+v", r)
	}
}

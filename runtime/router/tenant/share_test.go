package tenant

import (
	"math"
	"testing"
)

func TestAloneATenantGetsAll(t *testing.T) {
	d := newDesk(t, 10, "a", "b", "c")
	d.take("a", 10)
	d.refused("a", Full)
}

func TestSeatsThatComeFreeGoToWhoIsBelowItsShare(t *testing.T) {
	d := newDesk(t, 10, "a", "b")
	held := d.take("a", 10)
	wait := d.refused("b", Full)
	if math.Ceil(wait) >= half {
		t.Fatalf("told to come back after %g s, when the demand may be forgotten", wait)
	}
	d.now = 0.1
	d.Done(d.now, held[0], 1)
	d.refused("a", Share)
	d.now += wait
	d.take("b", 1)
	d.Done(d.now, held[1], 1)
	d.take("a", 1) // b was served, and asked for no more
}

func TestSilentTenantsKeepNothing(t *testing.T) {
	d := newDesk(t, 10, "a", "b")
	held := d.take("a", 10)
	d.refused("b", Full)
	d.Done(d.now, held[0], 1)
	d.refused("a", Share)
	d.now += memory
	d.take("a", 1)
}

func TestTenantThatOwesTokensKeepsNothing(t *testing.T) {
	d := newDesk(t, 4, "a", `b "tokens_per_s":0.1,"burst_tokens":10`)
	held := d.take("a", 3)
	if _, _, why := d.ask("b", 10); why != Admitted {
		t.Fatal(why)
	}
	if _, _, why := d.ask("b", 0); why != Full {
		t.Fatal(why)
	}
	d.Done(d.now, held[0], 1)
	d.take("a", 1)
}

// Others that hold less keep nothing from a tenant that is within its share.
func TestWithinItsShareAFreeSeatIsEnough(t *testing.T) {
	d := newDesk(t, 30, "a", "b", "c")
	held := d.take("c", 22)
	d.take("a", 8)
	for range 10 {
		d.refused("b", Full)
	}
	d.Done(d.now, held[0], 1)
	d.refused("c", Share)
	d.take("a", 1)
}

// Of tenants above their shares the one with the least for its weight is first; of equal
// ones any.
func TestAboveTheirSharesTheCheapestIsFirst(t *testing.T) {
	d := newDesk(t, 8, `a "weight":0.3`, `b "weight":0.3`, `c "weight":0.3`)
	d.take("c", 2)
	a := d.take("a", 3)
	b := d.take("b", 3)
	for _, n := range []string{"a", "b", "c"} {
		d.refused(n, Full)
	}
	d.Done(d.now, a[0], 1)
	d.refused("b", Share)
	d.take("a", 1)
	d.Done(d.now, a[1], 1)
	d.Done(d.now, b[0], 1)
	d.take("b", 1) // as high as a
}

func TestTenantThatMayNotKeepsNothing(t *testing.T) {
	d := newDesk(t, 4, "a", `b "max_inflight":1`, `c "tokens_per_s":1,"burst_tokens":1`)
	d.take("b", 1)
	d.take("c", 1)
	held := d.take("a", 2)
	d.refused("b", Inflight)
	d.refused("c", Tokens)
	d.Done(d.now, held[0], 1)
	d.take("a", 1)
}

func TestWeights(t *testing.T) {
	d := newDesk(t, 30, `a "weight":2`, `b "weight":1`, `c "weight":7`)
	d.take("a", 1)
	d.take("b", 1)
	if a, b, c := d.row("a").Share, d.row("b").Share, d.row("c").Share; a != 20 || b != 10 || c != 21 {
		t.Errorf("shares %d %d %d", a, b, c)
	}
}

func TestEveryTenantMayCountOnOneSeat(t *testing.T) {
	d := newDesk(t, 4, `a "weight":1000`, "b", "c", "d")
	names := []string{"b", "c", "d", "a"}
	for _, n := range names {
		d.take(n, 1)
	}
	for _, n := range names {
		if s := d.row(n).Share; s != 1 {
			t.Errorf("%s counts on %d", n, s)
		}
	}
}

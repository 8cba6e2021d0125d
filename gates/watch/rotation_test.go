package watch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRotationIsFair: with engines that come and go, whoever has a turn has waited longest of
// those that may have one; where all may, n turns are n different ones.
func TestRotationIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(rt, "engines")
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint("e", i))
		}
		pairs := pairsOf(ids)
		if len(pairs) != n*max(n-1, 0) {
			rt.Fatalf("%d pairs of %d engines", len(pairs), n)
		}
		at := map[Pair]time.Time{}
		look := func(p Pair) time.Time { return at[p] }
		now := time.Unix(1e9, 0)
		for range rapid.IntRange(0, 40).Draw(rt, "turns") {
			now = now.Add(time.Second)
			busy := rapid.SampledFrom(append(ids, "none", "none")).Draw(rt, "busy")
			may := func(p Pair) bool { return p.From != busy && p.To != busy }
			p, ok := oldest(pairs, look, may)
			for _, x := range pairs {
				if may(x) && (!ok || at[x].Before(at[p])) {
					rt.Fatalf("%v has its turn, %v waited longer", p, x)
				}
			}
			if ok && !may(p) {
				rt.Fatalf("%v has its turn while %s is busy", p, busy)
			}
			if ok {
				at[p] = now
			}
		}
		had := map[Pair]bool{}
		for range pairs {
			now = now.Add(time.Second)
			p, _ := oldest(pairs, look, func(Pair) bool { return true })
			if had[p] {
				rt.Fatalf("%v has a second turn before others had one", p)
			}
			had[p], at[p] = true, now
		}
	})
}

// TestBudgetIsKept: whatever looks take and however the clock is read, an engine gives no more
// than its share of the time and what is saved, and the last look.
func TestBudgetIsKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := Budget{Percent: rapid.Float64Range(0, 100).Draw(rt, "percent"), Saved: time.Duration(rapid.IntRange(0, 3600).Draw(rt, "saved")) * time.Second}
		var p Purse
		begin := time.Unix(1e9, 0)
		now, spent, last := begin, 0.0, 0.0
		for range rapid.IntRange(0, 60).Draw(rt, "moments") {
			now = now.Add(time.Duration(rapid.IntRange(-5, 600).Draw(rt, "passed")) * time.Second)
			if now.Before(begin) {
				now = begin
			}
			if !b.may(p, now) {
				continue
			}
			took := time.Duration(rapid.IntRange(0, 120000).Draw(rt, "took")) * time.Millisecond
			now = now.Add(took)
			p = b.charge(p, now, took)
			spent, last = spent+took.Seconds(), max(last, took.Seconds())
		}
		// A clock set back and forth counts at most what it showed forwards.
		if over := 60.0 * 5 * b.Percent / 100; spent > now.Sub(begin).Seconds()*b.Percent/100+b.Saved.Seconds()*b.Percent/100+last+over+1e-6 {
			rt.Fatalf("%.1f s of %v with %+v, the longest %.1f s", spent, now.Sub(begin), b, last)
		}
		if b.Percent == 0 && spent > 0 {
			rt.Fatal("looked without a budget")
		}
	})
}

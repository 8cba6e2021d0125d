package simulate

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestCacheForgetsTheLeastRecentlyUsed(t *testing.T) {
	c := &cache{limit: 100}
	for _, h := range []Head{{1, 40}, {2, 40}, {1, 30}, {3, 30}} {
		c.keep(h)
	}
	if got := fmt.Sprint(c.heads, c.held); got != "[{1 40} {3 30}] 70" {
		t.Error(got)
	}
	c.keep(Head{4, 101})
	if c.has(Head{1, 20}) != 20 || c.has(Head{1, 90}) != 40 || c.has(Head{2, 9}) != 0 || c.has(Head{4, 5}) != 0 || c.has(Head{}) != 0 || (*cache)(nil).has(Head{1, 5}) != 0 {
		t.Errorf("%+v", c)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &cache{limit: rapid.IntRange(1, 200).Draw(t, "limit")}
		for range rapid.IntRange(0, 50).Draw(t, "n") {
			c.keep(Head{rapid.IntRange(0, 6).Draw(t, "family"), rapid.IntRange(0, 90).Draw(t, "tokens")})
			sum := 0
			for _, h := range c.heads {
				sum += h.Tokens
			}
			if sum != c.held || sum > c.limit {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// talks are conversations: each turn's prompt begins with what the family had before.
func talks(families, n int, gap float64) (as []Arrival, hs []Head) {
	for i := range n {
		as = append(as, Arrival{float64(i) * gap, 4000 + i%7*100, 60, "history"})
		hs = append(hs, Head{1 + i*31%families, 3600})
	}
	return as, hs
}

// By hand: of two equal prompts of 1,000 tokens at 1 ms the second has 900 in the cache.
func TestHitByHand(t *testing.T) {
	m := Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000}
	for _, policy := range []string{"default", "arrow"} {
		c := config(m, 2, 0.02, Arrival{0, 1000, 1, "x"}, Arrival{3, 1000, 1, "x"})
		c.Policies, c.Params.Lend, c.Heads, c.PrefixTokens = []string{policy}, 0, []Head{{7, 900}, {7, 900}}, 5000
		if a := must(t, c).Arms[0]; *a.TTFT.P50 != 110 || *a.TTFT.P99 != 1010 || a.Qualified != 2 {
			t.Errorf("%s: first tokens at %v and %v ms", policy, *a.TTFT.P50, *a.TTFT.P99)
		}
		c.PrefixTokens = 0
		if a := must(t, c).Arms[0]; *a.TTFT.P50 != 1010 {
			t.Errorf("%s without a cache: %v ms", policy, *a.TTFT.P50)
		}
	}
}

// A router that goes where the prompt is serves more than without caches, and than one that does
// not look, whether or not the caches hold all that comes back.
func TestAffinityPays(t *testing.T) {
	var cold, warm, blind float64
	for _, families := range []int{17, 40, 61, 80, 121} {
		for _, rate := range []float64{18, 24, 30} {
			for _, room := range []int{60_000, 120_000} {
				as, hs := talks(families, 6000, 1/rate)
				c := config(reference(), 2, 0.06, as...)
				c.thorough = false
				cold += played(t, c, "default").score().Attainment / 30
				c.Heads, c.PrefixTokens = hs, room
				warm += played(t, c, "default").score().Attainment / 30
				blind += played(t, c, "reactive-fifo").score().Attainment / 30
			}
		}
	}
	t.Logf("cold %.4f, warm %.4f, reactive-fifo warm %.4f", cold, warm, blind)
	if warm < cold+0.05 || warm < blind+0.03 {
		t.Errorf("cold %.4f, warm %.4f, reactive-fifo warm %.4f", cold, warm, blind)
	}
}

// With caches of any size no invariant breaks and no arm passes the bound (Run fails then).
func TestRandomCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Engines: rapid.IntRange(2, 4).Draw(t, "engines"), PrefillAtStart: 1, Prefill: Prefill{1e-7, 1e-3, 0.001}, Decode: Decode{0.01, 0.002, 1e-6}, MaxRunning: 4, KVTokens: 2000}
		at, arrivals, heads := 0.0, []Arrival{}, []Head{}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			at += float64(rapid.IntRange(0, 60).Draw(t, "gap")) / 1000
			arrivals = append(arrivals, Arrival{at, rapid.IntRange(0, 300).Draw(t, "in"), rapid.IntRange(0, 30).Draw(t, "out"), "x"})
			heads = append(heads, Head{rapid.IntRange(0, 3).Draw(t, "family"), rapid.IntRange(0, 300).Draw(t, "shared")})
		}
		c := config(m, float64(rapid.IntRange(1, 8).Draw(t, "ttft"))/10, 0.03, arrivals...)
		c.Heads, c.PrefixTokens, c.Policies = heads, rapid.IntRange(0, 900).Draw(t, "cache"), PolicyNames()
		c.Interval, c.Control.Step, c.Control.EvidenceSpan, c.Control.Cooldown = 0.1, 0.1, 0.2, 0.1
		if rapid.Bool().Draw(t, "dies") {
			c.Unlike, c.Trouble.Attempts = []Unlike{{Engine: 0, Dies: 0.5, Back: 1}}, 2
		}
		must2(t, c)
	})
}

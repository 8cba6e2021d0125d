package fabric

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// TestRounds: every pair once, and in each round of a tournament no host meets two others;
// n−1 rounds for an even number of hosts, n for an odd one, the least that there can be.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 65).Draw(rt, "hosts")
		hosts := names(n)
		rounds := Rounds(hosts)
		want := map[bool]int{true: max(0, n-1), false: n}[n%2 == 0]
		if n < 2 {
			want = 0
		}
		if busy := slices.DeleteFunc(slices.Clone(rounds), func(r []Twosome) bool { return len(r) == 0 }); len(busy) != want {
			rt.Fatalf("%d rounds for %d hosts, want %d", len(busy), n, want)
		}
		seen := map[Edge]bool{}
		for i, r := range rounds {
			met := map[string]bool{}
			for _, p := range r {
				if met[p.A] || met[p.B] || slices.Index(hosts, p.A) >= slices.Index(hosts, p.B) {
					rt.Fatalf("round %d: %v meets another, or stands the wrong way round", i, p)
				}
				met[p.A], met[p.B] = true, true
				for _, e := range p.Edges() {
					if seen[e] {
						rt.Fatalf("edge %v stands twice", e)
					}
					seen[e] = true
				}
			}
			if len(r) > 0 && len(r) != n/2 {
				rt.Fatalf("round %d: %d pairs, want %d", i, len(r), n/2)
			}
		}
		if len(seen) != n*max(0, n-1) {
			rt.Fatalf("%d edges for %d hosts", len(seen), n)
		}
		if !slices.Equal(hosts, names(n)) { // the caller's list stays as it was
			rt.Fatalf("the hosts were reordered: %v", hosts)
		}
	})
}

func names(n int) []string {
	hosts := make([]string, n)
	for i := range hosts {
		hosts[i] = fmt.Sprint("h", i)
	}
	return hosts
}

func TestBudgetOf(t *testing.T) {
	layout := engine.CacheLayout{BlockSize: 16, BytesPerBlock: 2 << 20}
	for name, c := range map[string]struct {
		fabric   fleet.Fabric
		payload  int64
		required float64
		floor    float64
	}{
		// 8192/16 = 512 blocks of 2 MiB = 1 GiB; 8 × 2³⁰ × 1 × 1.25 / 10⁹
		"by rate":               {fleet.Fabric{PromptTokens: 8192, HandoffsPerS: 1, Headroom: 1.25}, 1 << 30, 10.73741824, 10.73741824},
		"part of a block":       {fleet.Fabric{PromptTokens: 1, HandoffsPerS: 1, Headroom: 1}, 2 << 20, 0.016777216, 0.016777216},
		"one more token":        {fleet.Fabric{PromptTokens: 17, HandoffsPerS: 1, Headroom: 1}, 4 << 20, 0.033554432, 0.033554432},
		"a burst that weighs":   {fleet.Fabric{PromptTokens: 16, HandoffsPerS: 1, Burst: 4, BudgetS: 0.5, Headroom: 1}, 2 << 20, 8 * 0.016777216, 8 * 0.016777216},
		"a burst that does not": {fleet.Fabric{PromptTokens: 16, HandoffsPerS: 3, Burst: 1, BudgetS: 1, Headroom: 1}, 2 << 20, 3 * 0.016777216, 3 * 0.016777216},
		"a burst without limit": {fleet.Fabric{PromptTokens: 16, HandoffsPerS: 1, Burst: 100, Headroom: 1}, 2 << 20, 0.016777216, 0.016777216},
		"a floor above it":      {fleet.Fabric{PromptTokens: 16, HandoffsPerS: 1, Headroom: 1, MinGbps: 8}, 2 << 20, 0.016777216, 8},
		"a floor below it":      {fleet.Fabric{PromptTokens: 8192, HandoffsPerS: 1, Headroom: 1.25, MinGbps: 8}, 1 << 30, 10.73741824, 10.73741824},
	} {
		b, err := BudgetOf(c.fabric, layout)
		if err != nil || b.Payload != c.payload || math.Abs(b.Required-c.required) > 1e-12 || math.Abs(b.Floor-c.floor) > 1e-12 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	for _, l := range []engine.CacheLayout{{}, {BlockSize: 16}, {BytesPerBlock: 1}, {BlockSize: -1, BytesPerBlock: 1}} {
		if _, err := BudgetOf(fleet.Fabric{PromptTokens: 1}, l); err == nil {
			t.Errorf("a budget of %+v", l)
		}
	}
}

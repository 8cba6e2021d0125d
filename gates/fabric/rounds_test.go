package fabric

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// TestRounds: every directed edge once, and in each round of a tournament no host meets two
// others; n−1 rounds for an even number of hosts, n for an odd one.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 33).Draw(rt, "hosts")
		hosts := make([]string, n)
		for i := range hosts {
			hosts[i] = fmt.Sprint("h", i)
		}
		edges := Rounds(hosts)
		if len(edges) != max(0, n*(n-1)) {
			rt.Fatalf("%d edges for %d hosts", len(edges), n)
		}
		seen := map[Edge]bool{}
		for _, e := range edges {
			if e.From == e.To || e.From == "" || e.To == "" || seen[e] {
				rt.Fatalf("edge %v is no edge or stands twice", e)
			}
			seen[e] = true
		}
		pairs, rounds := n/2, n-1 // of a round
		if n%2 == 1 {
			rounds = n
		}
		if pairs > 0 && len(edges) != rounds*pairs*2 {
			rt.Fatalf("%d edges are no %d rounds of %d pairs", len(edges), rounds, pairs)
		}
		for r := 0; pairs > 0 && r < rounds; r++ {
			met := map[string]string{}
			for _, e := range edges[r*pairs*2 : (r+1)*pairs*2] {
				if other, ok := met[e.From]; ok && other != e.To {
					rt.Fatalf("round %d: %s meets %s and %s", r, e.From, other, e.To)
				}
				met[e.From] = e.To
				if !seen[Edge{e.To, e.From}] {
					rt.Fatalf("%v has no way back", e)
				}
			}
			if len(met) != pairs*2 {
				rt.Fatalf("round %d: %d hosts are busy, want %d", r, len(met), pairs*2)
			}
		}
		for i := range hosts { // the caller's list stays as it was
			if hosts[i] != fmt.Sprint("h", i) {
				rt.Fatalf("the hosts were reordered: %v", hosts)
			}
		}
	})
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

package fleet

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the fleet, no engine hands to itself and no pair is asked twice; a mesh has all pairs, a
// ring lets each engine give and take, and hosts lets each host give to each other too.
func TestHandoffPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, hosts := rapid.IntRange(0, 24).Draw(t, "engines"), rapid.IntRange(1, 9).Draw(t, "hosts")
		kind := rapid.SampledFrom([]string{"mesh", "hosts", "ring"}).Draw(t, "pairs")
		f := Fleet{Deploy: &Deploy{Profile: Profiling{Pairs: kind}, Engines: map[string]Place{}}}
		on := map[string]bool{}
		for i := range n {
			h := fmt.Sprint("h", rapid.IntRange(0, hosts-1).Draw(t, "host"))
			on[h] = true
			f.Engines = append(f.Engines, Engine{IID: fmt.Sprint("e", i)})
			f.Deploy.Engines[f.Engines[i].IID] = Place{Host: h}
		}
		seen, gives, takes, met := map[[2]string]bool{}, map[string]bool{}, map[string]bool{}, map[[2]string]bool{}
		for _, p := range f.HandoffPairs() {
			if p[0] == p[1] || seen[p] {
				t.Fatalf("pair %v", p)
			}
			seen[p], gives[p[0]], takes[p[1]] = true, true, true
			if a, b := f.HostOf(p[0]), f.HostOf(p[1]); a != b {
				met[[2]string{a, b}] = true
			}
		}
		if n > 1 && (len(gives) != n || len(takes) != n) {
			t.Fatalf("%d of %d engines give, %d take", len(gives), n, len(takes))
		}
		switch h := len(on); {
		case kind == "mesh" && len(seen) != max(0, n*(n-1)), kind == "ring" && n > 1 && len(seen) != n:
			t.Fatalf("%d pairs of %d engines", len(seen), n)
		case kind == "hosts" && (len(met) != h*(h-1) || len(seen) > n+h*(h-1)):
			t.Fatalf("%d pairs, %d of %d pairs of hosts", len(seen), len(met), h*(h-1))
		}
	})
}

// Processes of one role hand over from prefill to decode only, each in its turn.
func TestHandoffPairsOfRoles(t *testing.T) {
	f := Fleet{Engine: Backend{Dialect: "sglang"}, Deploy: &Deploy{Profile: Profiling{Pairs: PairsRing}, Engines: map[string]Place{}}}
	for i, role := range []string{RolePrefill, RoleDecode, RoleDecode, RolePrefill, RoleDecode} {
		iid := fmt.Sprint("e", i)
		f.Engines = append(f.Engines, Engine{IID: iid, Role: role})
		f.Deploy.Engines[iid] = Place{Host: fmt.Sprint("h", i%3)}
	}
	if got, want := fmt.Sprint(f.HandoffPairs()), "[[e0 e1] [e3 e2] [e0 e4]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Deploy.Profile.Pairs = PairsHosts
	// Of the six pairs of hosts, those from h0 are met but to itself; h1 and h2 have no prefill engine.
	if got, want := fmt.Sprint(f.HandoffPairs()), "[[e0 e1] [e3 e2] [e0 e4]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

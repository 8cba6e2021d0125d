package gates

import (
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestActiveProfiles follows the profiles of a router that takes some up while it serves.
func TestActiveProfiles(t *testing.T) {
	f := testFleet()
	entry := func(sha string, bonds map[string]string) record.Entry {
		return record.Entry{Ref: record.Ref{SHA256: sha}, Bonds: bonds}
	}
	state := func(profile string, activation *record.Entry) record.State {
		g := map[record.Key]record.Entry{routerKey: entry("r", map[string]string{profilesActive: "first"})}
		if activation != nil {
			g[ActivationKey] = *activation
		}
		return record.State{Gates: map[string]record.Gate{"F": {Evidence: map[record.Key]record.Entry{"F/profile/e": entry(profile, nil)}}, "G": {Evidence: g}}}
	}
	now := evidenceDigest(f, state("x", nil), "F", "profile")
	taken := entry("a", map[string]string{"profiles": now, "proc/router/id": "b:1"})
	stale := taken
	stale.Stale = true
	for _, c := range []struct {
		what, profile, router, want string
		activation                  *record.Entry
	}{
		{"none was activated", "x", "b:1", now, nil},
		{"those of now were", "x", "b:1", "first", &taken},
		{"another router runs", "x", "b:2", now, &taken},
		{"no router runs", "x", Gone, now, &taken},
		{"the activation was withdrawn", "x", "b:1", now, &stale},
		{"others were", "y", "b:1", Untaken + evidenceDigest(f, state("y", nil), "F", "profile"), &taken},
	} {
		if got := activeProfiles(f, state(c.profile, c.activation), c.router); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestEnginesOf names whose evidence is whose, so that a replacement leaves that of others.
func TestEnginesOf(t *testing.T) {
	for key, want := range map[record.Key][]string{
		"A/host/h1": nil, "D/pair/h1/h2": nil, "F/store": nil, "G/router": nil, "C/launch/e": {"e"}, "C/rank/e/1": {"e"}, "E/statement/e": {"e"},
		"F/profile/e": {"e"}, "F/pair/p/d": {"p", "d"}, record.NewKey("C", "live", "a/b"): {"a/b"},
	} {
		if got := enginesOf(key); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}

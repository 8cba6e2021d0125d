package preflight

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestHintsWithoutHosts name a verb that the fleet can run.
func TestHintsWithoutHosts(t *testing.T) {
	hosts := &fleet.Deploy{Hosts: map[string]fleet.Host{"h": {}}}
	const again, budget = "then narwhal gate run --again F", "raise deploy.profile.budget"
	for _, c := range []struct {
		deploy   *fleet.Deploy
		evidence record.Key
		hint     string
		want     string
	}{
		{nil, ProfileKey("e"), again, "then narwhal profile -f FLEET --overwrite"}, {&fleet.Deploy{}, pairKey("e", "f"), again, "then narwhal check -f FLEET"}, {hosts, pairKey("e", "f"), again, again},
		{nil, ProfileKey("e"), budget, "raise --sweep-budget"}, {hosts, ProfileKey("e"), budget, budget},
		{nil, ProfileKey("e"), "change deploy.profile.prefill_tokens", "change --prefill-lens"},
		{nil, ProfileKey("e"), "change the points of deploy.profile, or", "change the points (--decode-input-lens, --decode-concurrency), or"},
	} {
		got := direct(fleet.Fleet{Deploy: c.deploy}, []record.Finding{{Evidence: string(c.evidence), Hint: c.hint}})
		if got[0].Hint != c.want {
			t.Errorf("%s: %q, want %q", c.evidence, got[0].Hint, c.want)
		}
	}
}

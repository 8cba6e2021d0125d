package preflight

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestHintsWithoutHosts name a verb that the fleet can run.
func TestHintsWithoutHosts(t *testing.T) {
	hosts := &fleet.Deploy{Hosts: map[string]fleet.Host{"h": {}}}
	for _, c := range []struct {
		deploy   *fleet.Deploy
		evidence record.Key
		want     string
	}{
		{nil, ProfileKey("e"), "then narwhal profile -f FLEET --overwrite"}, {&fleet.Deploy{}, pairKey("e", "f"), "then narwhal check -f FLEET"}, {hosts, pairKey("e", "f"), "then narwhal gate run --again F"},
	} {
		got := direct(fleet.Fleet{Deploy: c.deploy}, []record.Finding{{Evidence: string(c.evidence), Hint: "then narwhal gate run --again F"}})
		if got[0].Hint != c.want {
			t.Errorf("%s: %q, want %q", c.evidence, got[0].Hint, c.want)
		}
	}
}

package preflight

import (
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// ownFlags are what narwhal profile has for sections of a fleet file that a fleet without hosts lacks.
var ownFlags = strings.NewReplacer("deploy.profile.budget", "--sweep-budget", "deploy.profile.prefill_tokens", "--prefill-lens",
	"the points of deploy.profile", "the points (--decode-input-lens, --decode-concurrency)")

// direct names, in hints about a fleet without hosts, the verbs and flags that need none.
func direct(f fleet.Fleet, found []record.Finding) []record.Finding {
	if f.Deploy != nil && len(f.Deploy.Hosts) > 0 {
		return found
	}
	for i, x := range found {
		verb := "narwhal profile -f FLEET --overwrite"
		if record.Key(x.Evidence).Kind() == "pair" {
			verb = "narwhal check -f FLEET"
		}
		found[i].Hint = ownFlags.Replace(strings.ReplaceAll(x.Hint, "narwhal gate run --again F", verb))
	}
	return found
}

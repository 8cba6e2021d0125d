package preflight

import (
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// direct names, in hints about a fleet without hosts, the verbs that need none.
func direct(f fleet.Fleet, found []record.Finding) []record.Finding {
	if f.Deploy != nil && len(f.Deploy.Hosts) > 0 {
		return found
	}
	for i, x := range found {
		verb := "narwhal profile -f FLEET --overwrite"
		if record.Key(x.Evidence).Kind() == "pair" {
			verb = "narwhal check -f FLEET"
		}
		found[i].Hint = strings.ReplaceAll(x.Hint, "narwhal gate run --again F", verb)
	}
	return found
}

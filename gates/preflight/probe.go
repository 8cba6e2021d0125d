package preflight

import (
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// ProbeStep is one handoff of a pair with a short prompt and its unsplit run: what a fleet that
// serves is asked in between. Roles are the router's then, and none is switched.
func ProbeStep(f fleet.Fleet, p, d string) gates.Step {
	return handoffStep(f, HandoffRequest{From: p, To: d})
}

// JudgeProbe judges the answer of ProbeStep's command.
func JudgeProbe(f fleet.Fleet, p, d string, answer []byte) ([]record.Finding, error) {
	var h Handed
	if err := json.Unmarshal(answer, &h); err != nil {
		return nil, fmt.Errorf("read the answer of a handoff: %w", err)
	}
	return judgePair(f, p, d, h), nil
}

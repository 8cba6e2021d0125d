package preflight

import (
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// machine is what an engine that names no device of its own shares with others: the machine that
// it runs on, known by its boot, since hosts may be parts of one. "" for an engine that has a device,
// and for a simulated one, which waits and does not compute.
func machine(v gates.View, iid string) string {
	r, err := v.Fleet.Resolve(iid)
	if err != nil || r.Kind == fleet.LaunchSimulated || len(r.GPUs) > 0 || r.Shared != "" {
		return ""
	}
	for _, name := range fleet.VisibleDevices {
		if seen := strings.TrimSpace(r.Env[name]); seen != "" && seen != "-1" {
			return ""
		}
	}
	var live struct {
		BootID string `json:"boot_id"`
	}
	if v.Decode(record.NewKey("C", "live", iid), &live) == nil && live.BootID != "" {
		return "machine:" + live.BootID
	}
	return "machine:" + r.Host
}

// alone adds to what a step must have to itself the machines of its engines.
func alone(v gates.View, s *gates.Step) {
	for _, iid := range enginesOf(*s) {
		if m := machine(v, iid); m != "" && !slices.Contains(s.Exclusive, m) {
			s.Exclusive = append(s.Exclusive, m)
		}
	}
}

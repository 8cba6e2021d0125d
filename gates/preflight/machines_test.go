package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestOneMachine measures engines that name no device one at a time where they run on one machine,
// whatever the hosts are called.
func TestOneMachine(t *testing.T) {
	boots := map[record.Key]any{"C/live/p0": map[string]any{"boot_id": "b1"}, "C/live/d0": map[string]any{"boot_id": "b1"}}
	for name, c := range map[string]struct {
		change   func(*fleet.Fleet)
		evidence map[record.Key]any
		want     string // of engine d0, beside itself
		both     bool   // d0 and p0 hold the same
	}{
		"two hosts of one machine": {evidence: boots, want: "machine:b1", both: true},
		"two machines":             {evidence: map[record.Key]any{"C/live/p0": map[string]any{"boot_id": "b1"}, "C/live/d0": map[string]any{"boot_id": "b2"}}, want: "machine:b2"},
		"not looked at yet":        {want: "machine:h2"},
		"GPUs of their own": {evidence: boots, change: func(f *fleet.Fleet) {
			f.Deploy.Engines["d0"] = fleet.Place{Host: "h2", Launch: "l", GPUs: []string{"0"}}
		}},
		"a GPU by its variable": {evidence: boots, change: func(f *fleet.Fleet) {
			f.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchProcess, Argv: []string{"e"}, Env: map[string]string{"CUDA_VISIBLE_DEVICES": "1"}}
		}},
		"no GPU by its variable": {evidence: boots, want: "machine:b1", both: true, change: func(f *fleet.Fleet) {
			f.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchProcess, Argv: []string{"e"}, Env: map[string]string{"CUDA_VISIBLE_DEVICES": " -1"}}
		}},
		"simulated": {evidence: boots, change: func(f *fleet.Fleet) { f.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchSimulated} }},
	} {
		f := testFleet()
		f.Deploy.Launch = map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"e"}}}
		f.Deploy.Engines = map[string]fleet.Place{"p0": {Host: "h1", Launch: "l"}, "d0": {Host: "h2", Launch: "l"}}
		if c.change != nil {
			c.change(&f)
		}
		v, holds := view(t, f, c.evidence), map[string][]string{}
		for _, s := range append(append(engineSteps(f, f.Engines[0]), engineSteps(f, f.Engines[1])...), pairStep(f, "p0", "d0")) {
			alone(v, &s)
			holds[s.ID] = s.Exclusive
		}
		want := []string{"engine:d0"}
		if c.want != "" {
			want = append(want, c.want)
		}
		if got := holds["F/profile/d0"]; !slices.Equal(got, want) {
			t.Errorf("%s: profiling d0 holds %v, want %v", name, got, want)
		}
		if both := c.want != "" && slices.Contains(holds["F/profile/p0"], c.want); both != c.both {
			t.Errorf("%s: p0 holds %v", name, holds["F/profile/p0"])
		}
		if n := strings.Count(strings.Join(holds["F/pair/p0/d0"], " "), c.want); c.want != "" && n != 1 {
			t.Errorf("%s: the pair holds %v", name, holds["F/pair/p0/d0"])
		}
	}
}

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const (
	sendLimit  = fleet.Duration(10 * time.Minute)
	shortLimit = fleet.Duration(time.Minute)
	manifestID = "B/manifest"
)

// Plan looks at each host, sends what is missing, proves it, switches current, writes the
// role files and units and makes the sidecar's key.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	installs := v.Wants(manifestKey)
	for _, h := range v.Fleet.WorkHosts() {
		installs = installs || wantsRelease(v, h)
	}
	if installs {
		p.Steps = append(p.Steps, gates.Step{
			ID: manifestID, Title: "list and sign the release", Effect: gates.Observe, Limit: shortLimit, Yields: manifestKey, Local: &gates.LocalCall{Op: "manifest"},
		})
	}
	for _, h := range v.Fleet.WorkHosts() {
		var after []string
		if wantsRelease(v, h) {
			p.Steps = append(p.Steps, releaseSteps(v, h)...)
			after = []string{"B/switch/" + h}
		}
		steps, err := roleSteps(v, h, after)
		if err != nil {
			return p, err
		}
		p.Steps = append(append(p.Steps, steps...), unitSteps(v, h, after)...)
		if wantsRelease(v, h) || v.Current(lockKey(h)) {
			p.Steps = append(p.Steps, unlockStep(v, h, after))
		}
	}
	return p, nil
}

// wantsRelease: the ground, the lock, the proof and the switch are one thing.
func wantsRelease(v gates.View, h string) bool {
	for _, k := range []record.Key{groundKey(h), lockKey(h), proofKey(h), releaseKey(h)} {
		if v.Wants(k) {
			return true
		}
	}
	return false
}

func releaseSteps(v gates.View, h string) []gates.Step {
	root := v.Fleet.Deploy.Hosts[h].Root
	b, _ := v.Release.For(v.Facts["host/"+h+"/machine"]) // what fits no host is the judge's to find
	binary := path.Join(root, gates.DirReleases, b.SHA256, "narwhal")
	id := func(name string) string { return "B/" + name + "/" + h }
	q := SwitchRequest{Root: root, Release: b.SHA256}
	sw := q
	sw.Keep, sw.Holder = v.Fleet.Deploy.Release.Keep, holder(v)
	steps := []gates.Step{{
		ID: id("ground"), Title: "look at the root of " + h, Host: h, Effect: gates.Observe, Limit: shortLimit, Yields: groundKey(h), Media: "text/plain",
		Script: groundProbe(root, b),
	}, {
		ID: id("lock"), Title: "take the lock of " + h, Host: h, Effect: gates.Mutate, Limit: shortLimit, Yields: lockKey(h), Media: "text/plain",
		Script: lockProbe(root, v),
	}, {
		ID: id("send"), Title: "send the release to " + h, Host: h, Effect: gates.Mutate, Limit: sendLimit,
		File: &gates.File{Path: binary, SHA256: b.SHA256, Bytes: b.Bytes, Mode: 0o644, KeepMode: true, Release: true},
	}, {
		ID: id("statement"), Title: "send the manifest of the release to " + h, Host: h, Effect: gates.Mutate, Limit: shortLimit,
		File: &gates.File{Path: manifestPath(root, b.SHA256), Mode: 0o644, Evidence: manifestKey},
	}, {
		ID: id("proof"), Title: "prove the release on " + h + " and let it run", Host: h, Effect: gates.Mutate, Limit: shortLimit, Yields: proofKey(h), Media: "text/plain",
		Script: proofProbe(root, b.SHA256, v),
	}, {
		ID: id("switch"), Title: "switch " + h + " to the release", Host: h, Effect: gates.Mutate, Limit: shortLimit, Yields: releaseKey(h),
		Argv:  command(binary, "switch", sw),
		Check: command(binary, "release", q),
		Undo: &gates.Undo{
			Title: "switch " + h + " back to the release before", Limit: shortLimit, Restores: "current on " + h,
			Argv: command(binary, "switch-back", q),
		},
	}}
	// Each needs all before it: a file that was placed before a cut counts at once, and what
	// follows it must still wait for the lock.
	before := []string{manifestID}
	for i := range steps {
		steps[i].Needs = slices.Clone(before)
		before = append(before, steps[i].ID)
	}
	return steps
}

// unlockStep ends each plan that takes the lock, and the one after a run that was cut off
// while it held it.
func unlockStep(v gates.View, h string, after []string) gates.Step {
	return gates.Step{
		ID: "B/unlock/" + h, Title: "give the lock of " + h + " back", Host: h, Effect: gates.Mutate, Limit: shortLimit, Last: true, Needs: after,
		Script: unlockProbe(v.Fleet.Deploy.Hosts[h].Root, v),
	}
}

func roleSteps(v gates.View, h string, after []string) ([]gates.Step, error) {
	root := v.Fleet.Deploy.Hosts[h].Root
	var steps []gates.Step
	if v.Wants(filesKey(h)) {
		role, err := json.MarshalIndent(roleOf(v.Fleet, h), "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write role file of %s: %w", h, err)
		}
		id := "B/role/" + h
		steps = append(steps, gates.Step{
			ID: id, Title: "write the role file of " + h, Host: h, Effect: gates.Mutate, Limit: shortLimit, Needs: after,
			File: gates.TextFile(path.Join(root, gates.DirEtc, "host.json"), 0o644, append(role, '\n')),
		}, gates.Step{
			ID: "B/files/" + h, Title: "read back the role files of " + h, Host: h, Effect: gates.Observe, Limit: shortLimit, Needs: []string{id}, Yields: filesKey(h),
			Argv: gates.HostCommand(v.Fleet, h, "role-files", RootRequest{Root: root}),
		})
	}
	if v.Wants(keyKey(h)) {
		steps = append(steps, gates.Step{
			ID: "B/key/" + h, Title: "make the sidecar key of " + h, Host: h, Effect: gates.Mutate, Limit: shortLimit, Needs: after, Yields: keyKey(h),
			Argv:  gates.HostCommand(v.Fleet, h, "keygen", RootRequest{Root: root}),
			Check: gates.HostCommand(v.Fleet, h, "key", RootRequest{Root: root}),
		})
	}
	return steps, nil
}

// command asks the release's own binary, before current points to it.
func command(binary, verb string, request any) []string {
	b, err := json.Marshal(request)
	if err != nil {
		panic(fmt.Sprintf("marshal %s: %v", verb, err)) // plain data always marshals
	}
	return []string{binary, "host", verb, string(b)}
}

// Package install is gate B: it brings this same binary and the role files to every host.
//
// It promises that the digest is proven on the host before current points to a
// release, that the switch is atomic, and that content already there is not sent
// again. It refuses to remove a release that current or the one before points to.
package install

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gate is gate B.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "B", Name: "install", Title: "Install", Promise: "one proven release and its role files on every host"}
}

func releaseKey(h string) record.Key { return record.NewKey("B", "release", h) }
func filesKey(h string) record.Key   { return record.NewKey("B", "files", h) }
func keyKey(h string) record.Key     { return record.NewKey("B", "key", h) }

// Expect wants a release, role files and a sidecar key on every host.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	for _, h := range f.WorkHosts() {
		keys = append(keys, releaseKey(h), filesKey(h), keyKey(h))
	}
	return keys
}

const (
	sendLimit  = fleet.Duration(10 * time.Minute)
	shortLimit = fleet.Duration(time.Minute)
)

// Role is what a host is told about itself; it holds no secret.
type Role struct {
	Fleet   string   `json:"fleet"`
	Host    string   `json:"host"`
	Model   string   `json:"model"`
	Engines []string `json:"engines"`
	Router  bool     `json:"router"`
}

// String quotes what a host may have written.
func (r Role) String() string {
	return fmt.Sprintf("host %.64q of fleet %.64q, model %.64q, engines %.64q, router %v", r.Host, r.Fleet, r.Model, r.Engines, r.Router)
}

func roleOf(f fleet.Fleet, host string) Role {
	r := Role{Fleet: f.Deploy.Name, Host: host, Model: f.Model, Engines: []string{}, Router: f.Deploy.Router.Host == host}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) == host {
			r.Engines = append(r.Engines, e.IID)
		}
	}
	return r
}

// Plan sends what is missing, proves it, switches current, writes the role files and
// makes the sidecar's key.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	for _, h := range v.Fleet.WorkHosts() {
		steps, err := hostSteps(v, h)
		if err != nil {
			return p, err
		}
		p.Steps = append(p.Steps, steps...)
	}
	return p, nil
}

func hostSteps(v gates.View, h string) ([]gates.Step, error) {
	root := v.Fleet.Deploy.Hosts[h].Root
	var steps []gates.Step
	var after []string
	if v.Wants(releaseKey(h)) {
		binary := path.Join(root, gates.DirReleases, v.Release.SHA256, "narwhal")
		send, switchID := "B/send/"+h, "B/switch/"+h
		steps = append(steps, gates.Step{
			ID: send, Title: "send the release to " + h, Host: h, Effect: gates.Mutate, Limit: sendLimit,
			File: &gates.File{Path: binary, SHA256: v.Release.SHA256, Bytes: v.Release.Bytes, Mode: 0o755, Release: true},
		}, gates.Step{
			ID: switchID, Title: "switch " + h + " to the release", Host: h, Effect: gates.Mutate, Limit: shortLimit, Needs: []string{send}, Yields: releaseKey(h),
			Argv:  command(binary, "switch", SwitchRequest{Root: root, Release: v.Release.SHA256, Keep: v.Fleet.Deploy.Release.Keep}),
			Check: command(binary, "release", SwitchRequest{Root: root, Release: v.Release.SHA256}),
			Undo: &gates.Undo{
				Title: "switch " + h + " back to the release before", Limit: shortLimit, Restores: "current on " + h,
				Argv: command(binary, "switch-back", SwitchRequest{Root: root, Release: v.Release.SHA256}),
			},
		})
		after = []string{switchID}
	}
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

// Facts are the release, the role files and the key of each host.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	h := "host/" + key.Subjects()[0] + "/"
	switch key.Kind() {
	case "release":
		var s Switched
		if json.Unmarshal(data, &s) == nil {
			return map[string]string{h + "release": s.Current}
		}
	case "files":
		var s RoleFiles
		if json.Unmarshal(data, &s) == nil {
			return map[string]string{h + "files-dir": s.Digest}
		}
	case "key":
		var k Key
		if json.Unmarshal(data, &k) == nil {
			return map[string]string{h + "key": k.SHA256}
		}
	}
	return nil
}

// Judge checks that each host runs the release and says its role.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	owner := map[string]string{} // public key → host
	for _, h := range v.Fleet.WorkHosts() {
		var s Switched
		if v.Decode(releaseKey(h), &s) == nil && (s.Self != v.Release.SHA256 || s.Current != v.Release.SHA256) {
			out = append(out, record.Finding{Code: "release-differs", Host: h, Want: v.Release.SHA256, Got: s.Self, Evidence: string(releaseKey(h)),
				Message: fmt.Sprintf("host %s runs release %.12s, want %.12s", h, s.Self, v.Release.SHA256), Hint: "narwhal gate run --again B"})
		}
		var r RoleFiles
		if v.Decode(filesKey(h), &r) == nil {
			if want := roleOf(v.Fleet, h); !reflect.DeepEqual(r.Role, want) {
				out = append(out, record.Finding{Code: "role-differs", Host: h, Want: want.String(), Got: r.Role.String(), Evidence: string(filesKey(h)),
					Message: fmt.Sprintf("host %s says it is %s, want %s", h, r.Role, want),
					Hint:    "two hosts or fleets share one root: give each its own deploy.hosts root"})
			}
		}
		var k Key
		if v.Decode(keyKey(h), &k) != nil {
			continue
		}
		if k.Public == "" {
			out = append(out, record.Finding{Code: "sidecar-key-missing", Host: h, Evidence: string(keyKey(h)),
				Message: fmt.Sprintf("host %s has no sidecar key", h), Hint: "narwhal gate run --again B"})
		} else if first := owner[k.Public]; first != "" {
			out = append(out, record.Finding{Code: "sidecar-key-shared", Host: h, Want: "a key of its own", Got: "that of host " + first, Evidence: string(keyKey(h)),
				Message: fmt.Sprintf("hosts %s and %s have one sidecar key: either could sign for the other", first, h),
				Hint:    "one root for two hosts: give each its own deploy.hosts root; one image for both: remove etc/sidecar.key and .pub below the root of " + h + ", then narwhal gate run --again B"})
		} else {
			owner[k.Public] = h
		}
	}
	return out
}

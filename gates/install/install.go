// Package install is gate B: it brings this same binary and the role files to every host.
//
// It promises that a host is looked at before anything is sent, that its root has one
// installer at a time, that the digest, and the signature where keys are trusted, are proven
// on the host before the release may run, that the switch is atomic, and that content already
// there is not sent again. It refuses to remove a release that current or the one before
// points to.
package install

import (
	"encoding/json"
	"fmt"

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

const manifestKey = record.Key("B/manifest")

func groundKey(h string) record.Key  { return record.NewKey("B", "ground", h) }
func lockKey(h string) record.Key    { return record.NewKey("B", "lock", h) }
func proofKey(h string) record.Key   { return record.NewKey("B", "proof", h) }
func releaseKey(h string) record.Key { return record.NewKey("B", "release", h) }
func filesKey(h string) record.Key   { return record.NewKey("B", "files", h) }
func managerKey(h string) record.Key { return record.NewKey("B", "manager", h) }
func unitsKey(h string) record.Key   { return record.NewKey("B", "units", h) }
func keyKey(h string) record.Key     { return record.NewKey("B", "key", h) }

// Expect wants what the release consists of, and on every host its ground, its lock, its
// proof, the release itself, role files, a sidecar key, and where systemd supervises its manager
// and the units.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{manifestKey}
	for _, h := range f.WorkHosts() {
		keys = append(keys, groundKey(h), lockKey(h), proofKey(h), releaseKey(h), filesKey(h), keyKey(h))
		if wantsUnits(f, h) {
			keys = append(keys, managerKey(h), unitsKey(h))
		}
	}
	return keys
}

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

// Facts are the release, the role files and the key of each host.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	if len(key.Subjects()) != 1 {
		return nil
	}
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
	case "units":
		var u Units
		if json.Unmarshal(data, &u) == nil {
			return map[string]string{h + "units": u.Digest}
		}
	case "key":
		var k Key
		if json.Unmarshal(data, &k) == nil {
			return map[string]string{h + "key": k.SHA256}
		}
	}
	return nil
}

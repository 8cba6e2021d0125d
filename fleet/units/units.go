// Package units writes the systemd units of a fleet's router, standby and sidecars.
//
// It promises that the same fleet gives the same bytes, that no unit holds a secret, and that
// each demands only what its manager can give. It refuses to say how a process is started: a
// unit runs the installed binary, which reads the launch that a gate left beside the unit.
package units

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Dir is the folder below a host's root that holds one folder a set of units.
const Dir = "units"

// Names of the processes that clients can ask, and what those of the sidecars begin with.
const (
	Router        = "router"
	Standby       = "standby"
	sidecarPrefix = "sidecar-"
)

// Unit is one service of a host.
type Unit struct {
	Name    string // "narwhal-tern-router.service"
	Process string // "router"
	Path    string // on the host
	Content []byte
	SHA256  string // of Content
	User    bool   // of the user's manager
	// Boot means that it is started with the host.
	Boot bool
}

// Of returns the units of a host in the order of their names, none where narwhal itself
// supervises.
func Of(f fleet.Fleet, host string) []Unit {
	scope := f.Supervise(host)
	if scope == fleet.SuperviseOwn {
		return nil
	}
	var out []Unit
	add := func(process string, s service) {
		s.fleet, s.host, s.process, s.user = f, host, process, scope == fleet.SuperviseUser
		// The content names no set yet, which is made of it.
		out = append(out, Unit{Name: "narwhal-" + f.Deploy.Name + "-" + process + ".service", Process: process, Content: s.render(), User: s.user, Boot: !s.sidecar})
	}
	r := f.Deploy.Router
	if r.Host == host {
		add(Router, service{listen: r.Listen})
	}
	if r.Standby != nil && r.Standby.Host == host && r.Lease.On() {
		add(Standby, service{listen: r.Standby.Listen})
	}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) == host && e.AttestationURL != "" {
			l, _ := f.LaunchOf(e.IID)
			add(sidecarPrefix+e.IID, service{sidecar: true, contained: l.Kind == fleet.LaunchContainer})
		}
	}
	slices.SortFunc(out, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
	dir := path.Join(f.Deploy.Hosts[host].Root, Dir, setOf(out))
	for i := range out {
		u := &out[i]
		u.Path = path.Join(dir, u.Name)
		u.Content = expand(u.Content, path.Join(dir, u.Process+".json"))
		sum := sha256.Sum256(u.Content)
		u.SHA256 = hex.EncodeToString(sum[:])
	}
	return out
}

// setOf names a set of units by what they hold, so that an older set stays beside it.
func setOf(all []Unit) string {
	h := sha256.New()
	for _, u := range all {
		sum := sha256.Sum256(u.Content)
		h.Write([]byte(u.Name + "\x00" + hex.EncodeToString(sum[:]) + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// For is the unit of a process; false where it has none.
func For(f fleet.Fleet, host, process string) (Unit, bool) {
	for _, u := range Of(f, host) {
		if u.Process == process {
			return u, true
		}
	}
	return Unit{}, false
}

// Folder is where the units of a host lie, "" without any.
func Folder(f fleet.Fleet, host string) string {
	if all := Of(f, host); len(all) > 0 {
		return path.Dir(all[0].Path)
	}
	return ""
}

// SecretFile is the file below a host's root from which a unit takes secrets; the operator
// writes it, and no gate.
const SecretFile = "etc/router.env"

// Secrets are the variables that the processes of a host need of SecretFile, sorted.
func Secrets(f fleet.Fleet, host string) []string {
	for _, u := range Of(f, host) {
		if u.Process == Router || u.Process == Standby {
			return RouterSecrets(f)
		}
	}
	return nil
}

// RouterSecrets are the variables that a router of the fleet reads, sorted.
func RouterSecrets(f fleet.Fleet) (out []string) {
	add := func(name string) {
		if name != "" {
			out = append(out, name)
		}
	}
	variable := func(ref fleet.SecretRef) {
		if name, ok := strings.CutPrefix(string(ref), "env:"); ok {
			add(name)
		}
	}
	add(f.Engine.EngineAPIKeyEnv)
	variable(f.Deploy.Router.HTTP.ControlToken)
	if e := f.Deploy.Router.Lease.Etcd; e != nil {
		variable(e.Password)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

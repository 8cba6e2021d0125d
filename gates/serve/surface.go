package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// surface is a process of the fleet that clients can ask: the router, or its standby.
type surface struct {
	name         string
	key          record.Key
	host, listen string
	title, undo  string
	verb         []string // of narwhal, with its first flags
}

// theRouter is the router by itself.
func theRouter(f fleet.Fleet) surface {
	r := f.Deploy.Router
	return surface{name: routerName, key: routerKey, host: r.Host, listen: r.Listen, title: "start the router on " + r.Host, undo: "drain and stop the router", verb: []string{"serve"}}
}

// theRouterBehind is the router where the standby serves: it goes on with what that one has.
func theRouterBehind(f fleet.Fleet) surface {
	s := theRouter(f)
	s.title, s.verb = "start the router behind the standby on "+s.host, []string{"standby", "--of", reachedAt(f, f.Deploy.Router.Standby.Host, f.Deploy.Router.Standby.Listen, s.host)}
	return s
}

// theStandby is the standby behind the router.
func theStandby(f fleet.Fleet) surface {
	s := standsBy(f)
	return surface{name: standbyName, key: standbyKey, host: s.Host, listen: s.Listen, title: "start the standby on " + s.Host, undo: "drain and stop the standby",
		verb: []string{"standby", "--of", primary(f)}}
}

// parts are the steps that bring a surface up: its files, then its start.
type parts struct {
	files  []gates.Step
	start  gates.Step
	launch string
}

// partsOf plans a surface.
func partsOf(v gates.View, s surface) (parts, error) {
	f := v.Fleet
	id := func(what string) string {
		if s.name == routerName {
			return "G/" + what
		}
		return "G/" + s.name + "-" + what
	}
	doc, err := document(f, s)
	if err != nil {
		return parts{}, err
	}
	fleetFile := gates.TextFile(pathOn(f, s.host, s.name, "fleet.json"), 0o600, doc)
	spec := process.Spec{Name: s.name, Argv: argvOf(f, s, fleetFile.Path), Unit: gates.UnitOf(f, s.host, s.name)}
	with := func(profiles string) string {
		text := strings.Join(spec.Argv, "\x00") + "\x00" + fleetFile.SHA256 + "\x00" + profiles + "\x00" + v.Release.Digest()
		if spec.Unit != nil {
			text += "\x00" + spec.Unit.File + "\x00" + spec.Unit.SHA256
		}
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	spec.Launch = with(v.Facts["profiles"])
	active := v.Facts["profiles/active"]
	if with(active) == v.Facts["proc/"+s.name+"/launch"] || strings.HasPrefix(active, gates.Untaken) {
		spec.Launch = with(active) // it took up the profiles of now while it ran, or others
	}
	within := gates.RouterGrace(f)
	start := gates.LaunchStep(f, "G/"+s.name, s.host, spec, within)
	spec.Inherit = units.RouterSecrets(f)
	if spec.Unit == nil { // that of a unit finds them in a file on its host
		start.Secrets = map[string]fleet.SecretRef{}
		for _, name := range spec.Inherit {
			start.Secrets[name] = fleet.SecretRef("env:" + name)
		}
	}
	if s.name == routerName && spec.Unit != nil {
		// Two that wait for each other would serve nobody: after a crash or a reboot it asks for the lease itself.
		spec.Again = argvOf(f, theRouter(f), fleetFile.Path)
	}
	start.Argv = gates.HostCommand(f, s.host, "launch", gates.LaunchRequest{Root: f.Deploy.Hosts[s.host].Root, Spec: spec, Replace: within})
	start.Yields, start.Title, start.Limit = s.key, s.title, within+shortLimit
	start.Undo = gates.DrainUndo(f, s.host, s.name, within)
	start.Undo.Title = s.undo
	if runs(v, s.name) {
		start.Effect = gates.Disrupt
	}
	return parts{launch: spec.Launch, start: start, files: []gates.Step{
		gates.FreeStep(f, id("port"), s.host, s.name, s.listen),
		{ID: id("fleet-file"), Title: "write the " + s.name + "'s fleet file", Host: s.host, Effect: gates.Mutate, File: fleetFile, Limit: shortLimit},
		{ID: id("profiles"), Title: "write the " + s.name + "'s profiles", Host: s.host, Effect: gates.Mutate, Limit: shortLimit,
			File: &gates.File{Path: pathOn(f, s.host, s.name, "profiles.json"), Mode: 0o600, Evidence: storeKey}},
	}}, nil
}

// argvOf is the command of a surface.
func argvOf(f fleet.Fleet, s surface, fleetFile string) []string {
	argv := append([]string{path.Join(f.Deploy.Hosts[s.host].Root, gates.LinkCurrent, "narwhal")}, s.verb...)
	argv = append(argv, "--fleet", fleetFile, "--listen", s.listen, "--journal", path.Join(f.Deploy.Hosts[s.host].Root, gates.JournalOf(s.name)))
	if f.Deploy.Router.Lease.On() {
		argv = append(argv, "--router-id", s.host+"/"+s.name)
	}
	return append(argv, options(f.Deploy.Router)...)
}

// document is what a surface reads: the fleet without deploy, its paths made absolute.
func document(f fleet.Fleet, s surface) ([]byte, error) {
	f.Profiles.Path = pathOn(f, s.host, s.name, "profiles.json")
	f.Recovery.StatePath = pathOn(f, s.host, s.name, "state.json")
	f.Deploy = nil
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the %s's fleet file: %w", s.name, err)
	}
	return append(b, '\n'), nil
}

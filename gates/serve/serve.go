// Package serve is gate G: the router runs on its host, answers through a tunnel, and
// carries a measured trial whose client rows agree with its journal.
//
// It promises that the router and its standby outlive the session, that every offered request counts,
// and that the first bundle is taken while the evidence is fresh. It refuses a trial
// whose tunnel broke.
package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Gate is gate G.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "G", Name: "serve", Title: "Serve", Promise: "the router serves a reconciled trial through a tunnel"}
}

const (
	routerKey   = record.Key("G/router")
	readyKey    = record.Key("G/ready")
	trialKey    = record.Key("G/trial")
	journalKey  = record.Key("G/journal")
	bundleKey   = record.Key("G/bundle")
	standbyKey  = record.Key("G/standby")
	standingKey = record.Key("G/standing")
	storeKey    = record.Key("F/store")
)

// Expect wants the router, its readiness, the standby where the fleet has one, the trial, the
// journal's rows and a bundle.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{routerKey, readyKey}
	if standsBy(f) != nil {
		keys = append(keys, standbyKey, standingKey)
	}
	return append(keys, trialKey, journalKey, bundleKey)
}

const (
	routerName  = "router"
	standbyName = "standby"
	shortLimit  = fleet.Duration(time.Minute)
)

// pathOn is a file of the router or the standby below the root of its host.
func pathOn(f fleet.Fleet, host, process, name string) string {
	return path.Join(f.Deploy.Hosts[host].Root, process, name)
}

func readyWithin(f fleet.Fleet) fleet.Duration {
	if d := f.Deploy.Router.Within; d > 0 {
		return d
	}
	return shortLimit
}

// Plan starts the router if its inputs changed and repeats what depends on it.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	var before []string
	add := func(s gates.Step) {
		s.Needs = append(s.Needs, before...)
		p.Steps = append(p.Steps, s)
		before = []string{s.ID}
	}
	f := v.Fleet
	behind := standsBy(f)
	if behind != nil && v.Wants(routerKey) && runs(v, standbyName) {
		add(endStandby(v, behind.Host))
	}
	if v.Wants(routerKey) {
		steps, err := routerSteps(v)
		if err != nil {
			return p, err
		}
		for _, s := range steps {
			add(s)
		}
	}
	within := readyWithin(f)
	if v.Wants(readyKey) || v.Wants(routerKey) {
		add(local("ready", "wait until the router is ready", readyKey, "ready", within+shortLimit, readyArgs{Within: within}))
	}
	if behind != nil && (v.Wants(standbyKey) || v.Wants(routerKey)) {
		steps, err := standbySteps(v)
		if err != nil {
			return p, err
		}
		for _, s := range steps {
			add(s)
		}
	} else if behind != nil && v.Wants(standingKey) {
		add(standingStep(within))
	}
	if v.Wants(trialKey) || v.Wants(routerKey) {
		add(local("trial", "offer the trial", trialKey, "trial", trialLimit(f.Deploy.Trial), nil))
	}
	if v.Wants(journalKey) || v.Wants(trialKey) || v.Wants(routerKey) {
		add(journalStep(f))
	}
	if v.Wants(bundleKey) || v.Wants(trialKey) || v.Wants(routerKey) {
		s := local("bundle", "collect a bundle", bundleKey, "bundle", 5*shortLimit, nil)
		s.Media, s.Local.Runs = "application/gzip", bundleRuns(f)
		add(s)
	}
	return p, nil
}

func local(id, title string, yields record.Key, op string, limit fleet.Duration, args any) gates.Step {
	call := &gates.LocalCall{Op: op}
	if args != nil {
		call.Args, _ = json.Marshal(args) // plain data always marshals
	}
	return gates.Step{ID: "G/" + id, Title: title, Effect: gates.Observe, Yields: yields, Local: call, Limit: limit}
}

// trialLimit is the trial's length by its rates, twice, and some minutes.
func trialLimit(t fleet.Trial) fleet.Duration {
	s := 0.0
	for _, r := range t.Rates {
		if r > 0 {
			s += float64(t.Requests) / r
		}
	}
	return fleet.Duration(2*s*float64(time.Second)) + 5*shortLimit
}

// surface is a process of the fleet that clients can ask: the router, or its standby.
type surface struct {
	name         string
	key          record.Key
	host, listen string
	title, undo  string
	verb         []string // of narwhal, with its first flags
}

// routerSteps write the router's files and start it.
func routerSteps(v gates.View) ([]gates.Step, error) {
	r := v.Fleet.Deploy.Router
	return surfaceSteps(v, surface{name: routerName, key: routerKey, host: r.Host, listen: r.Listen, title: "start the router on " + r.Host, undo: "drain and stop the router", verb: []string{"serve"}})
}

// grace is what a router may take to end.
func grace(f fleet.Fleet) fleet.Duration {
	return fleet.Duration(f.Serving.GracefulTimeoutS*float64(time.Second)) + fleet.Duration(10*time.Second)
}

// surfaceSteps write the files of a surface and start it.
func surfaceSteps(v gates.View, s surface) ([]gates.Step, error) {
	f := v.Fleet
	id := func(what string) string {
		if s.name == routerName {
			return "G/" + what
		}
		return "G/" + s.name + "-" + what
	}
	doc, err := document(f, s)
	if err != nil {
		return nil, err
	}
	fleetFile := gates.TextFile(pathOn(f, s.host, s.name, "fleet.json"), 0o600, doc)
	argv := append([]string{path.Join(f.Deploy.Hosts[s.host].Root, gates.LinkCurrent, "narwhal")}, s.verb...)
	argv = append(argv, "--fleet", fleetFile.Path, "--listen", s.listen, "--journal", pathOn(f, s.host, s.name, "journal.jsonl"))
	if f.Deploy.Router.Lease.On() {
		argv = append(argv, "--router-id", s.host+"/"+s.name)
	}
	argv = append(argv, options(f.Deploy.Router)...)
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00") + "\x00" + fleetFile.SHA256 + "\x00" + v.Facts["profiles"]))
	spec := process.Spec{Name: s.name, Argv: argv, Launch: hex.EncodeToString(sum[:])}
	start := gates.LaunchStep(f, "G/"+s.name, s.host, spec, grace(f))
	start.Yields, start.Title = s.key, s.title
	start.Undo.Title = s.undo
	if name := f.Engine.EngineAPIKeyEnv; name != "" {
		start.Secrets = map[string]fleet.SecretRef{name: fleet.SecretRef("env:" + name)}
		spec.Inherit = []string{name}
		start.Argv = gates.HostCommand(f, s.host, "launch", gates.LaunchRequest{Root: f.Deploy.Hosts[s.host].Root, Spec: spec, Replace: grace(f)})
	}
	if runs(v, s.name) {
		start.Effect = gates.Disrupt
	}
	return []gates.Step{
		gates.FreeStep(f, id("port"), s.host, s.name, s.listen),
		{ID: id("fleet-file"), Title: "write the " + s.name + "'s fleet file", Host: s.host, Effect: gates.Mutate, File: fleetFile, Limit: shortLimit},
		{ID: id("profiles"), Title: "write the " + s.name + "'s profiles", Host: s.host, Effect: gates.Mutate, Limit: shortLimit,
			File: &gates.File{Path: pathOn(f, s.host, s.name, "profiles.json"), Mode: 0o600, Evidence: storeKey}},
		start,
	}, nil
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

// Halts offers no trial to a router that is not ready.
func (Gate) Halts(key record.Key, data []byte) string {
	var r Ready
	if key == readyKey && json.Unmarshal(data, &r) == nil && !r.Ready {
		return "the router is not ready"
	}
	return ""
}

// Facts are the processes of the router and the standby.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	var l gates.Launched
	name := map[record.Key]string{routerKey: routerName, standbyKey: standbyName}[key]
	if name == "" || json.Unmarshal(data, &l) != nil || l.Name != name {
		return nil
	}
	return l.ProcessFacts()
}

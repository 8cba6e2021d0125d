// Package serve is gate G: the router runs on its host, answers through a tunnel, and
// carries a measured trial whose client rows agree with its journal.
//
// It promises that the router outlives the session, that every offered request counts,
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
	routerKey  = record.Key("G/router")
	readyKey   = record.Key("G/ready")
	trialKey   = record.Key("G/trial")
	journalKey = record.Key("G/journal")
	bundleKey  = record.Key("G/bundle")
	storeKey   = record.Key("F/store")
)

// Expect wants the router, its readiness, the trial, the journal's rows and a bundle.
func (Gate) Expect(fleet.Fleet) []record.Key {
	return []record.Key{routerKey, readyKey, trialKey, journalKey, bundleKey}
}

const (
	routerName = "router"
	shortLimit = fleet.Duration(time.Minute)
)

// Paths of the router's files below its host's root.
func routerPath(f fleet.Fleet, name string) string {
	return path.Join(f.Deploy.Hosts[f.Deploy.Router.Host].Root, "router", name)
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
	if v.Wants(routerKey) {
		steps, err := routerSteps(v)
		if err != nil {
			return p, err
		}
		for _, s := range steps {
			add(s)
		}
	}
	within := f.Deploy.Router.Within
	if within <= 0 {
		within = shortLimit
	}
	if v.Wants(readyKey) || v.Wants(routerKey) {
		add(local("ready", "wait until the router is ready", readyKey, "ready", within+shortLimit, readyArgs{Within: within}))
	}
	if v.Wants(trialKey) || v.Wants(routerKey) {
		add(local("trial", "offer the trial", trialKey, "trial", trialLimit(f.Deploy.Trial), nil))
	}
	if v.Wants(journalKey) || v.Wants(trialKey) || v.Wants(routerKey) {
		add(local("journal", "read the journal's rows of the trial", journalKey, "journal", shortLimit, nil))
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

// routerSteps write the router's files and start it.
func routerSteps(v gates.View) ([]gates.Step, error) {
	f := v.Fleet
	host := f.Deploy.Router.Host
	doc, err := document(f)
	if err != nil {
		return nil, err
	}
	fleetFile := gates.TextFile(routerPath(f, "fleet.json"), 0o600, doc)
	argv := []string{path.Join(f.Deploy.Hosts[host].Root, gates.LinkCurrent, "narwhal"), "serve", "--fleet", fleetFile.Path,
		"--listen", f.Deploy.Router.Listen, "--journal", routerPath(f, "journal.jsonl")}
	argv = append(argv, options(f.Deploy.Router)...)
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00") + "\x00" + fleetFile.SHA256 + "\x00" + v.Facts["profiles"]))
	spec := process.Spec{Name: routerName, Argv: argv, Launch: hex.EncodeToString(sum[:])}
	grace := fleet.Duration(f.Serving.GracefulTimeoutS*float64(time.Second)) + fleet.Duration(10*time.Second)
	start := gates.LaunchStep(f, "G/router", host, spec, grace)
	start.Yields, start.Title = routerKey, "start the router on "+host
	start.Undo.Title = "drain and stop the router"
	if name := f.Engine.EngineAPIKeyEnv; name != "" {
		start.Secrets = map[string]fleet.SecretRef{name: fleet.SecretRef("env:" + name)}
		spec.Inherit = []string{name}
		start.Argv = gates.HostCommand(f, host, "launch", gates.LaunchRequest{Root: f.Deploy.Hosts[host].Root, Spec: spec, Replace: grace})
	}
	if was := v.Facts["proc/router/launch"]; was != "" && was != gates.Gone {
		start.Effect = gates.Disrupt
	}
	return []gates.Step{
		gates.FreeStep(f, "G/port", host, routerName, f.Deploy.Router.Listen),
		{ID: "G/fleet-file", Title: "write the router's fleet file", Host: host, Effect: gates.Mutate, File: fleetFile, Limit: shortLimit},
		{ID: "G/profiles", Title: "write the router's profiles", Host: host, Effect: gates.Mutate, Limit: shortLimit,
			File: &gates.File{Path: routerPath(f, "profiles.json"), Mode: 0o600, Evidence: storeKey}},
		start,
	}, nil
}

// document is what the router reads: the fleet without deploy, its paths made absolute.
func document(f fleet.Fleet) ([]byte, error) {
	f.Profiles.Path = routerPath(f, "profiles.json")
	f.Recovery.StatePath = routerPath(f, "state.json")
	f.Deploy = nil
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the router's fleet file: %w", err)
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

// Facts are the router's process.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	var l gates.Launched
	if key != routerKey || json.Unmarshal(data, &l) != nil || l.Name != routerName {
		return nil
	}
	return l.ProcessFacts()
}

// Package serve is gate G: the router runs on its host, answers through a tunnel, and
// carries a measured trial whose client rows agree with its journal.
//
// It promises that the router and its standby outlive the session, that every offered request counts,
// that a rate is offered only after the one before it passed and the router drained, and that the first
// bundle is taken while the evidence is fresh. It refuses to pass a trial whose tunnel broke.
package serve

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gate is gate G.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "G", Name: "serve", Title: "Serve", Promise: "the router serves a reconciled trial through a tunnel"}
}

const (
	routerKey     = record.Key("G/router")
	readyKey      = record.Key("G/ready")
	trialKey      = record.Key("G/trial")
	journalKey    = record.Key("G/journal")
	bundleKey     = record.Key("G/bundle")
	standbyKey    = record.Key("G/standby")
	standingKey   = record.Key("G/standing")
	ringKey       = record.Key("G/ring")
	acceptanceKey = record.Key("G/acceptance")
	storeKey      = record.Key("F/store")

	routerDrainKey  = record.Key("G/drain")
	standbyDrainKey = record.Key("G/drain-standby")
)

// Expect wants the end of the router before, the router, its readiness, the standby and the monitoring where the fleet has
// one, the trial, the journal's rows, the ring, the acceptance note and a bundle.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{routerDrainKey, routerKey, readyKey}
	if standsBy(f) != nil {
		keys = append(keys, standbyDrainKey, standbyKey, standingKey)
	}
	keys = append(keys, monitoringKeys(f)...)
	return append(keys, trialKey, journalKey, ringKey, acceptanceKey, bundleKey)
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

// Plan starts the router if its inputs changed, handing over where a standby can take its
// place meanwhile, and repeats what depends on it.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	// Each needs all before it: a file that was placed before a cut counts at once, and what
	// follows it must still wait for what ends and starts before.
	var before []string
	add := func(steps ...gates.Step) {
		for _, s := range steps {
			s.Needs = slices.Clone(before)
			p.Steps = append(p.Steps, s)
			before = append(before, s.ID)
		}
	}
	f := v.Fleet
	steps, router, err := startSteps(v)
	if err != nil {
		return p, err
	}
	add(steps...)
	watched, err := monitoringSteps(v, router, before)
	if err != nil {
		return p, err
	}
	p.Steps = append(p.Steps, watched...) // nothing of the trial waits for them
	if v.Wants(trialKey) || router {
		add(trialStep(f))
	}
	if v.Wants(journalKey) || v.Wants(trialKey) || router {
		add(journalStep(f))
	}
	if v.Wants(ringKey) || v.Wants(trialKey) || router {
		add(ringStep(f))
	}
	if v.Wants(acceptanceKey) || v.Wants(trialKey) || router {
		add(local("acceptance", "write the acceptance note", acceptanceKey, "acceptance", shortLimit, nil))
	}
	if v.Wants(bundleKey) || v.Wants(trialKey) || router {
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

// Halts offers no trial to a router that is not ready, and ends nothing that serves before
// another can take its place.
func (Gate) Halts(key record.Key, data []byte) string {
	var r Ready
	var s Standing
	var d gates.Drained
	var c MonitoringChecked
	switch {
	case key == monitoringCheckKey && json.Unmarshal(data, &c) == nil && c.Tool && !c.OK:
		return "promtool does not take the files"
	case key == readyKey && json.Unmarshal(data, &r) == nil && !r.Ready:
		return "the router is not ready"
	case key == standingKey && json.Unmarshal(data, &s) == nil && s.Before != "" && !s.Standing:
		return "nobody can take over: " + s.Reason
	case (key == routerDrainKey || key == standbyDrainKey) && json.Unmarshal(data, &d) == nil && d.Succeeded != nil && !d.Succeeded.Ready:
		return "nobody took over"
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

// Package engines is gate C: engines are launched, proven live, and their cache layout
// is captured.
//
// It promises that an engine already running from the same launch is adopted, that a
// launch names its ports before it takes them, and that whoever answers on an engine's
// address is the process that was launched. It refuses a fleet whose engines differ in
// version, model or cache layout.
package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Gate is gate C.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "C", Name: "engines", Title: "Engines", Promise: "engines run their launch and answer alike"}
}

func portsKey(e string) record.Key  { return record.NewKey("C", "ports", e) }
func launchKey(e string) record.Key { return record.NewKey("C", "launch", e) }
func liveKey(e string) record.Key   { return record.NewKey("C", "live", e) }
func cacheKey(e string) record.Key  { return record.NewKey("C", "cache", e) }

// Expect wants four pieces of evidence an engine.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	for _, e := range f.EngineIDs() {
		keys = append(keys, portsKey(e), launchKey(e), liveKey(e), cacheKey(e))
	}
	return keys
}

// ProcessName is the name under which an engine runs on its host.
func ProcessName(iid string) string { return "engine-" + iid }

// Plan checks the ports, launches and captures what is wanted. Engines of one host that
// share GPUs start one after another; the others at once.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	turn := map[string]string{} // shared device → the step after which the next engine may start
	for _, e := range v.Fleet.EngineIDs() {
		r, err := v.Fleet.Resolve(e)
		if err != nil {
			return p, problem.Wrap(problem.Invalid, "launch_unresolved", "plan gate C", err, "narwhal validate names the line")
		}
		steps, err := engineSteps(v, r, turn)
		if err != nil {
			return p, err
		}
		p.Steps = append(p.Steps, steps...)
	}
	return p, nil
}

func engineSteps(v gates.View, r fleet.Resolved, turn map[string]string) ([]gates.Step, error) {
	e, f := r.IID, v.Fleet
	device := deviceOf(f, e)
	root := f.Deploy.Hosts[r.Host].Root
	var steps []gates.Step
	var before []string
	add := func(s gates.Step) {
		s.Host, s.Engine, s.Needs = r.Host, e, append(before, s.Needs...)
		steps, before = append(steps, s), []string{s.ID}
	}
	if v.Wants(portsKey(e)) || (v.Wants(launchKey(e)) && !v.Current(portsKey(e))) {
		add(gates.Step{
			ID: "C/ports/" + e, Title: "check the ports of " + e, Effect: gates.Observe, Yields: portsKey(e), Limit: fleet.Duration(time.Minute),
			Argv: gates.HostCommand(f, r.Host, "ports", PortsRequest{Root: root, Name: ProcessName(e), Listen: listens(r)}),
		})
	}
	if v.Wants(launchKey(e)) {
		spec, err := Spec(f, r)
		if err != nil {
			return nil, err
		}
		s := gates.LaunchStep(f, "C/launch/"+e, r.Host, spec, stopWithin(r))
		s.Title, s.Yields, s.Secrets = "launch engine "+e, launchKey(e), r.Secrets
		if was := v.Facts["proc/"+ProcessName(e)+"/launch"]; was != "" && was != gates.Gone && was != spec.Launch {
			s.Effect, s.Title = gates.Disrupt, "replace engine "+e
		}
		if step := turn[device]; device != "" && step != "" {
			s.Needs = []string{step} // an engine measures the device's free memory while it starts
		}
		if device != "" {
			turn[device] = "C/live/" + e
		}
		add(s)
	}
	if v.Wants(liveKey(e)) || v.Wants(launchKey(e)) {
		within := r.Within
		if within <= 0 {
			within = fleet.Duration(10 * time.Minute)
		}
		add(gates.Step{
			ID: "C/live/" + e, Title: "wait until engine " + e + " generates", Effect: gates.Observe, Yields: liveKey(e), Limit: within + fleet.Duration(time.Minute),
			Argv: gates.HostCommand(f, r.Host, "engine-live", LiveRequest{Root: root, Name: ProcessName(e), URL: r.URL, Model: f.Model, Within: within}),
		})
	}
	if v.Wants(cacheKey(e)) || v.Wants(launchKey(e)) {
		add(gates.Step{
			ID: "C/cache/" + e, Title: "capture the cache layout of " + e, Effect: gates.Observe, Yields: cacheKey(e), Limit: fleet.Duration(time.Minute),
			Argv: gates.HostCommand(f, r.Host, "engine-cache", CacheRequest{URL: r.URL, Geometry: geometryOf(f.EngineContract)}),
		})
	}
	return steps, nil
}

// deviceOf names the device that an engine shares, "" when it has its own.
func deviceOf(f fleet.Fleet, iid string) string {
	e, _ := f.ByID(iid)
	if e.SharedDevice == nil {
		return ""
	}
	if e.SharedDevice.GPUUUID != "" {
		return e.SharedDevice.GPUUUID
	}
	return f.HostOf(iid) + "/" + e.SharedDevice.Group
}

func stopWithin(r fleet.Resolved) fleet.Duration {
	if r.StopAfter > 0 {
		return r.StopAfter
	}
	return fleet.Duration(30 * time.Second)
}

// listens are the addresses that an engine binds.
func listens(r fleet.Resolved) []string {
	host := r.Listen[:strings.LastIndex(r.Listen, ":")]
	out := []string{r.Listen}
	if r.Side > 0 {
		out = append(out, host+":"+strconv.Itoa(r.Side))
	}
	if lo, hi, ok := strings.Cut(r.UCX, "-"); ok {
		a, aerr := strconv.Atoi(lo)
		b, berr := strconv.Atoi(hi)
		for p := a; aerr == nil && berr == nil && p <= b && p-a < 1024; p++ {
			out = append(out, host+":"+strconv.Itoa(p))
		}
	}
	return out
}

// Spec is the process that runs an engine. A container runs in the foreground of its
// runtime's client, so that it has a process like any other.
func Spec(f fleet.Fleet, r fleet.Resolved) (process.Spec, error) {
	s := process.Spec{Name: ProcessName(r.IID), Env: r.Env, Launch: r.Digest()}
	for name := range r.Secrets {
		s.Inherit = append(s.Inherit, name)
	}
	slices.Sort(s.Inherit)
	root := f.Deploy.Hosts[r.Host].Root
	switch r.Kind {
	case fleet.LaunchProcess:
		s.Argv = r.Argv
	case fleet.LaunchSimulated:
		sim := fleet.Simulated{}
		if r.Simulated != nil {
			sim = *r.Simulated
		}
		params, err := json.Marshal(sim)
		if err != nil {
			return s, fmt.Errorf("plan launch of %s: %w", r.IID, err)
		}
		s.Argv = []string{path.Join(root, gates.LinkCurrent, "narwhal"), "engine", "simulated", "--listen", r.Listen,
			"--side-channel", strconv.Itoa(r.Side), "--model", f.Model, "--params", string(params)}
	case fleet.LaunchContainer:
		s.Argv, s.After = containerArgv(f, r), containerAfter(f, r)
	default:
		return s, problem.New(problem.Invalid, "launch_kind_unsupported", fmt.Sprintf("engine %s: launch kind %q is not run by this version", r.IID, r.Kind),
			"use kind process (its argv may call systemd-run) or container")
	}
	if len(s.Argv) == 0 {
		return s, problem.New(problem.Invalid, "launch_empty", fmt.Sprintf("engine %s: its launch has no argv", r.IID), "set deploy.launch.…argv")
	}
	return s, nil
}

func containerName(f fleet.Fleet, r fleet.Resolved) string {
	return "narwhal-" + f.Deploy.Name + "-" + r.IID
}

func containerRuntime(r fleet.Resolved) string {
	if r.Runtime == "" {
		return "docker"
	}
	return r.Runtime
}

// containerAfter removes the container when its client had to be killed. A container that
// is gone is a success in either runtime.
func containerAfter(f fleet.Fleet, r fleet.Resolved) []string {
	const script = `"$1" rm --force "$2" >/dev/null 2>&1; ! "$1" container inspect "$2" >/dev/null 2>&1`
	return []string{"sh", "-c", script, "sh", containerRuntime(r), containerName(f, r)}
}

func containerArgv(f fleet.Fleet, r fleet.Resolved) []string {
	runtime := containerRuntime(r)
	argv := []string{runtime, "run", "--rm", "--init", "--name", containerName(f, r), "--network", "host", "--ipc", "host", "--ulimit", "memlock=-1:-1"}
	if r.ModelDir != "" {
		argv = append(argv, "--volume", r.ModelDir+":"+r.ModelDir+":ro")
	}
	var names []string
	for name := range r.Env {
		names = append(names, name)
	}
	for name := range r.Secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names { // by name only: values come from the client's environment
		argv = append(argv, "--env", name)
	}
	return append(append(argv, r.Image), r.Argv...)
}

// Halts stops before a launch whose ports are taken, and before asking an engine that is
// not ready for its cache.
func (Gate) Halts(key record.Key, data []byte) string {
	switch key.Kind() {
	case "ports":
		var p Ports
		if json.Unmarshal(data, &p) == nil && len(p.Taken) > 0 {
			return p.Taken[0].Address + " is taken"
		}
	case "live":
		var l Live
		if json.Unmarshal(data, &l) == nil && !l.Ready {
			return "the engine is not ready"
		}
	}
	return ""
}

// Facts are the process that was launched.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	if key.Kind() != "launch" {
		return nil
	}
	var l gates.Launched
	if json.Unmarshal(data, &l) != nil || l.Name != ProcessName(key.Subjects()[0]) {
		return nil
	}
	return l.ProcessFacts()
}

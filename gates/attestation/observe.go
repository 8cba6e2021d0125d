package attestation

import (
	"context"
	"fmt"
	"path"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/attest/look"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

func observedKey(e string) record.Key { return record.NewKey("E", "observed", e) }

// hashLimit is how long the files of a model may take to read.
const hashLimit = 30 * fleet.Duration(60e9)

// ObserveRequest asks what a host shows of a recorded process.
type ObserveRequest struct {
	Root  string     `json:"root"`
	Name  string     `json:"name"`
	Watch look.Watch `json:"watch"`
}

// Observation is what a host showed of a process, over the operator's own connection.
type Observation struct {
	process.Identity
	Observed look.Observed `json:"observed"`
}

// HostVerbs are what gate E asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{"attest-observe": gates.Answer(observe)}
}

func observe(ctx context.Context, q ObserveRequest) (Observation, error) {
	r, ok := process.Read(filepath.Join(q.Root, gates.DirRun), q.Name)
	if !ok || !r.Alive() {
		return Observation{}, fmt.Errorf("observe %s: it does not run", q.Name)
	}
	seen, err := look.New(q.Watch, false).Look(ctx, r.PID, int64(r.StartTicks))
	if err != nil {
		return Observation{}, fmt.Errorf("observe %s: %w", q.Name, err)
	}
	return Observation{Identity: r.Identity, Observed: seen}, nil
}

// WatchOf is where to look for an engine's files, container and listener.
func WatchOf(f fleet.Fleet, e string) (look.Watch, error) {
	r, err := f.Resolve(e)
	if err != nil {
		return look.Watch{}, err
	}
	w := look.Options(r.Argv)
	if r.ModelDir != "" {
		w.Model = r.ModelDir
	}
	w.Engine = r.URL
	w.Cache = path.Join(f.Deploy.Hosts[r.Host].Root, "attest", e+".hashes.json")
	if r.Kind == fleet.LaunchContainer {
		w.Container = containerOf(f, r)
	}
	return w, nil
}

// containerOf names an engine's container, with its runtime, as gate C makes it.
func containerOf(f fleet.Fleet, r fleet.Resolved) string {
	runtime := r.Runtime
	if runtime == "" {
		runtime = "docker"
	}
	return runtime + ":narwhal-" + f.Deploy.Name + "-" + r.IID
}

// observeStep looks at the engine's process over the operator's connection.
func observeStep(v gates.View, e, host string) (gates.Step, error) {
	w, err := WatchOf(v.Fleet, e)
	if err != nil {
		return gates.Step{}, err
	}
	root := v.Fleet.Deploy.Hosts[host].Root
	return gates.Step{
		ID: "E/observed/" + e, Title: "look at the files, devices and libraries of " + e, Host: host, Engine: e, Effect: gates.Observe,
		Yields: observedKey(e), Limit: hashLimit,
		Argv: gates.HostCommand(v.Fleet, host, "attest-observe", ObserveRequest{Root: root, Name: "engine-" + e, Watch: w}),
	}, nil
}

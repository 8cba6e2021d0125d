// Package discover is gate A: it freezes the inputs and observes every host.
//
// It promises to read only, to need nothing but sshd and a POSIX shell, and to use one
// command a host. It refuses to pass a host that it could not read whole.
package discover

import (
	"context"
	"encoding/json"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gate is gate A.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "A", Name: "discover", Title: "Discover", Promise: "inputs are frozen and every host is observed"}
}

func hostKey(id string) record.Key { return record.NewKey("A", "host", id) }

const inputsKey = record.Key("A/inputs")

// Expect wants the inputs and one observation a host.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{inputsKey}
	for _, h := range f.WorkHosts() {
		keys = append(keys, hostKey(h))
	}
	return keys
}

const probeLimit = 60 * time.Second

// Plan freezes the inputs and sends the probe to each host.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	if v.Wants(inputsKey) {
		p.Steps = append(p.Steps, gates.Step{
			ID: "A/inputs", Title: "freeze the inputs", Effect: gates.Observe, Yields: inputsKey,
			Local: &gates.LocalCall{Op: "freeze"}, Limit: fleet.Duration(probeLimit),
		})
	}
	for _, id := range v.Fleet.WorkHosts() {
		if !v.Wants(hostKey(id)) {
			continue
		}
		p.Steps = append(p.Steps, gates.Step{
			ID: "A/host/" + id, Title: "observe host " + id, Host: id, Effect: gates.Observe, Yields: hostKey(id), Media: "text/plain",
			Script: Probe(v.Fleet.Deploy.Hosts[id]), Limit: fleet.Duration(probeLimit),
		})
	}
	return p, nil
}

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"freeze": func(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
		v := env.View()
		return json.Marshal(Inputs{Fleet: v.Fleet, Release: v.Release})
	}}
}

// Inputs are what a run works from.
type Inputs struct {
	Fleet   fleet.Fleet   `json:"fleet"`
	Release gates.Release `json:"release"`
}

// Facts reads boot id and file identities out of a host's observation.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	if key.Kind() != "host" {
		return nil
	}
	o, err := Parse(data)
	if err != nil {
		return nil
	}
	id := key.Subjects()[0]
	return map[string]string{"host/" + id + "/boot": o.BootID, "host/" + id + "/files": o.filesFact()}
}

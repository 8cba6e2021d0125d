// Package discover is gate A: it freezes the inputs and observes every host.
//
// It promises to change nothing on a host and to need nothing there but sshd and a POSIX
// shell; one tool that hangs or lies costs its own evidence. It refuses to pass a host that
// it could not read whole, and to count what it does not know as good.
package discover

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
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

const inputsKey = record.Key("A/inputs")

func hostKey(id string) record.Key     { return record.NewKey("A", "host", id) }
func clockKey(id string) record.Key    { return record.NewKey("A", "clock", id) }
func hardwareKey(id string) record.Key { return record.NewKey("A", "hardware", id) }
func networkKey(id string) record.Key  { return record.NewKey("A", "network", id) }
func imagesKey(id string) record.Key   { return record.NewKey("A", "images", id) }
func modelKey(id string) record.Key    { return record.NewKey("A", "model", id) }

// Expect wants the inputs and, of each host, what concerns it: its devices where it carries
// engines, images and checkpoints where their launches name any.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{inputsKey}
	engines := map[string]bool{}
	for _, h := range f.EngineHosts() {
		engines[h] = true
	}
	for _, h := range f.WorkHosts() {
		keys = append(keys, hostKey(h), clockKey(h), networkKey(h))
		if engines[h] {
			keys = append(keys, hardwareKey(h))
		}
		if len(f.Images(h)) > 0 {
			keys = append(keys, imagesKey(h))
		}
		if len(f.ModelDirs(h)) > 0 {
			keys = append(keys, modelKey(h))
		}
	}
	return keys
}

const probeLimit = 60 * time.Second

// Plan freezes the inputs and sends the probes to each host.
func (g Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	addresses := fabricAddresses(v.Fleet)
	for _, k := range g.Expect(v.Fleet) {
		if v.Wants(k) {
			p.Steps = append(p.Steps, step(v, k, addresses)) // a host's first key is its own
		}
	}
	return p, nil
}

// step makes one piece of evidence.
func step(v gates.View, k record.Key, addresses map[string]netip.Addr) gates.Step {
	s := gates.Step{ID: string(k), Effect: gates.Observe, Yields: k, Limit: fleet.Duration(probeLimit)}
	if k == inputsKey {
		s.Title, s.Local = "freeze the inputs", &gates.LocalCall{Op: "freeze"}
		return s
	}
	f := v.Fleet
	id := k.Subjects()[0]
	s.Host = id
	if k != hostKey(id) && v.Wants(hostKey(id)) {
		s.Needs = []string{string(hostKey(id))} // which tells the boot that the evidence is bound to
	}
	local := func(op string, args any, runs ...gates.HostRun) {
		b, err := json.Marshal(args)
		if err != nil {
			panic(fmt.Sprintf("marshal arguments: %v", err)) // plain data always marshals
		}
		s.Local = &gates.LocalCall{Op: op, Args: b, Runs: map[string][]gates.HostRun{id: runs}}
	}
	switch k.Kind() {
	case "host":
		s.Title, s.Script, s.Media = "observe host "+id, Probe(f.Deploy.Hosts[id]), "text/plain"
	case "hardware":
		s.Title, s.Script, s.Media = "list the devices of host "+id, HardwareProbe(), "text/plain"
	case "network":
		s.Title, s.Script, s.Media = "list the links and routes of host "+id, NetworkProbe(peers(addresses, id)), "text/plain"
	case "images":
		s.Title, s.Script, s.Media = "look for the images on host "+id, imagesScript(f.Images(id)), "text/plain"
	case "clock":
		s.Title = "compare the clock of host " + id
		local("clock", clockArgs{Host: id, Limit: f.Deploy.Policy.MaxClockOffset}, gates.HostRun{Script: clockScript})
	case "model":
		dirs := f.ModelDirs(id)
		s.Title, s.Limit = "read the checkpoint on host "+id, fleet.Duration(treeLimit)
		local("tree", treeArgs{Host: id, Dirs: dirs, Anew: v.Because(k) == gates.AskedToRepeat("A")}, treeRuns(dirs)...)
	}
	return s
}

// Locals are the operations of the gate that the workstation leads.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{
		"freeze": func(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
			v := env.View()
			return json.Marshal(Inputs{Fleet: v.Fleet, Release: v.Release})
		},
		"clock": lookAtClock,
		"tree":  readTrees,
	}
}

// Inputs are what a run works from.
type Inputs struct {
	Fleet   fleet.Fleet   `json:"fleet"`
	Release gates.Release `json:"release"`
}

// Facts reads boot id and file identities out of a host's observations.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	switch key.Kind() {
	case "host":
		o, err := Parse(data)
		if err != nil {
			return nil
		}
		id := key.Subjects()[0]
		return map[string]string{"host/" + id + "/boot": o.BootID, "host/" + id + "/files": o.filesFact(), "host/" + id + "/machine": gates.Arch(o.OS, o.Machine)}
	case "model":
		var c Checkpoints
		if json.Unmarshal(data, &c) != nil {
			return nil
		}
		return map[string]string{"host/" + key.Subjects()[0] + "/trees": c.fact()}
	}
	return nil
}

// fact is the same fact that the installed binary observes later.
func (c Checkpoints) fact() string {
	var lines []string
	for _, t := range c.Trees {
		if len(t.Model.Files) == 0 {
			lines = append(lines, t.Dir+" absent")
		}
		for _, f := range t.Model.Files {
			lines = append(lines, gates.TreeLine(t.Dir, f.Path, f.Size, f.MTime, f.Inode))
		}
	}
	return gates.FilesDigest(lines)
}

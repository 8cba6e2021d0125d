package gates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gone is the value of a process fact when nothing runs under the name.
const Gone = "gone"

// digestOf identifies a value by the SHA-256 of its JSON.
func digestOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal fact: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Inputs returns the facts that come from the fleet file and the release.
//
//	fleet/document   everything             fleet/slo      the latency limits
//	fleet/host/H     how H is reached       fleet/files/H  the files named for H
//	fleet/launch/E   E's resolved launch    fleet/fabric   transport and budget inputs
//	fleet/runtime    what the router reads  fleet/trial    the trial's traffic
//	fleet/model      the served name        fleet/role/H   what H is told about itself
//	fleet/link       what a fabric sample depends on
//	fleet/trees/H    the checkpoints on H   fleet/images/H the images on H
//	fleet/fabric-addresses                  where each engine host's KV is reached
//	fleet/units/H    the unit files of H  fleet/unit/P      the unit that runs process P
//	fleet/succession                        what two routers share where one goes on for the other
//	fleet/monitoring                        what the monitoring's files and their place depend on
//	fleet/engines/H                         how H's engines are launched, and what they serve
//	release          digest of the binary, or of all where hosts get several
func Inputs(f fleet.Fleet, rel Release) map[string]string {
	facts := map[string]string{
		"fleet/document": digestOf(f),
		"fleet/slo":      digestOf(f.SLO),
		"fleet/model":    f.Model,
		"fleet/contract": digestOf(f.EngineContract),
		"release":        rel.Digest(),
	}
	plain := f
	plain.Deploy = nil
	facts["fleet/runtime"] = digestOf(plain)
	d := f.Deploy
	if d == nil {
		return facts
	}
	facts["fleet/fabric"] = digestOf(d.Fabric)
	facts["fleet/link"] = digestOf(d.Fabric.Measured())
	facts["fleet/profile"] = digestOf(d.Profile.Measured())
	facts["fleet/trial"] = digestOf(d.Trial)
	facts["fleet/router"] = digestOf(d.Router)
	facts["fleet/succession"] = succeeds(f)
	facts["fleet/monitoring"] = watches(f)
	facts["fleet/policy"] = digestOf(d.Policy)
	addresses := map[string]string{}
	for _, id := range f.EngineHosts() {
		addresses[id] = f.FabricAddress(id)
	}
	facts["fleet/fabric-addresses"] = digestOf(addresses)
	kept := map[string]map[string]string{}
	for id, h := range d.Hosts {
		facts["fleet/trees/"+id] = digestOf(f.ModelDirs(id))
		facts["fleet/images/"+id] = digestOf(f.Images(id))
		facts["fleet/host/"+id] = digestOf([]any{h.Address, h.Port, h.User, h.Jump, h.Root, h.FabricAddress, h.FabricPort})
		facts["fleet/files/"+id] = digestOf(h.Files)
		facts["fleet/units/"+id], kept[id] = unitFacts(f, id)
		facts["fleet/role/"+id] = digestOf([]any{d.Name, f.Model, enginesOn(f, id), d.Router.Host == id})
	}
	unit := func(host, process string) string { return cmp.Or(kept[host][process], fleet.SuperviseOwn) }
	facts["fleet/unit/"+routerProcess] = unit(d.Router.Host, routerProcess)
	if s := d.Router.Standby; s != nil {
		facts["fleet/unit/"+standbyProcess] = unit(s.Host, standbyProcess)
	}
	launches := map[string][]string{}
	for _, e := range f.Engines {
		if r, err := f.Resolve(e.IID); err == nil {
			facts["fleet/launch/"+e.IID] = r.Digest()
			launches[f.HostOf(e.IID)] = append(launches[f.HostOf(e.IID)], e.IID, r.Digest())
		}
		facts["fleet/attest/"+e.IID] = e.AttestationURL
		facts["fleet/unit/sidecar-"+e.IID] = unit(f.HostOf(e.IID), "sidecar-"+e.IID)
		facts["engine/"+e.IID+"/host"] = f.HostOf(e.IID)
	}
	for id := range d.Hosts {
		facts["fleet/engines/"+id] = digestOf([]any{f.Model, launches[id]})
	}
	return facts
}

// succeeds identifies what a router must share with the one whose requests it goes on with.
func succeeds(f fleet.Fleet) string {
	r, engines := f.Deploy.Router, [][2]string{}
	for _, e := range f.Engines {
		engines = append(engines, [2]string{e.IID, e.URL})
	}
	return digestOf([]any{f.Model, engines, f.EngineContract, f.Engine, f.Recovery.EngineRestartPolicy, r.Host, r.Listen, r.Standby, r.Lease})
}

// watches identifies what the monitoring's files and their place depend on.
func watches(f fleet.Fleet) string {
	d := f.Deploy
	on := func(host string) []string { return []string{host, d.Hosts[host].Address, d.Hosts[host].Root} }
	parts := []any{d.Monitoring, on(f.MonitoringHost()), on(d.Router.Host), d.Router.Listen, d.Router.Standby, d.Router.Lease.On()}
	if s := d.Router.Standby; s != nil {
		parts = append(parts, on(s.Host))
	}
	return digestOf(parts)
}

// enginesOn lists the engines that are placed on a host.
func enginesOn(f fleet.Fleet, host string) []string {
	out := []string{}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) == host {
			out = append(out, e.IID)
		}
	}
	return out
}

// derive adds facts that follow from others: the KV path of each engine pair and the ways
// between a host and all others, where there is evidence of them, the fleet's cache geometry and
// the profile store.
func derive(f fleet.Fleet, facts map[string]string, s record.State) {
	for k := range s.Gates["F"].Evidence {
		if names := k.Subjects(); k.Kind() == "pair" && len(names) == 2 {
			facts["path/"+names[0]+"/"+names[1]] = wayFact(facts, f.HostOf(names[0]), f.HostOf(names[1]))
		}
	}
	for k := range s.Gates["D"].Evidence {
		if names := k.Subjects(); k.Kind() == "incast" && len(names) == 1 {
			facts["routes/"+names[0]] = waysFact(f, facts, names[0])
		}
	}
	facts["cache"] = evidenceDigest(f, s, "C", "cache")
	facts["profiles"] = evidenceDigest(f, s, "F", "profile")
	facts[profilesActive] = activeProfiles(f, s, facts["proc/"+routerProcess+"/id"])
}

// wayFact is how KV gets from one host to another.
func wayFact(facts map[string]string, from, to string) string {
	return digestOf([]string{facts["host/"+from+"/route/"+to], facts["host/"+to+"/route/"+from], facts["fleet/host/"+from], facts["fleet/host/"+to]})
}

// waysFact is how a host and all others with engines reach each other.
func waysFact(f fleet.Fleet, facts map[string]string, host string) string {
	var ways []string
	for _, o := range f.EngineHosts() {
		if o != host {
			ways = append(ways, o, facts["host/"+host+"/route/"+o], facts["host/"+o+"/route/"+host], facts["fleet/host/"+o])
		}
	}
	return digestOf(ways)
}

// bonds returns the facts that fresh evidence is bound to. It derives only those, since
// that happens after every step.
func (r *Runner) bonds(k record.Key) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	bonds := bondsOf(k, r.facts)
	for name := range bonds {
		switch p := strings.Split(name, "/"); p[0] {
		case "path":
			names := k.Subjects()
			bonds[name] = wayFact(r.facts, r.Fleet.HostOf(names[0]), r.Fleet.HostOf(names[1]))
		case "routes":
			bonds[name] = waysFact(r.Fleet, r.facts, k.Subjects()[0])
		case "cache":
			bonds[name] = evidenceDigest(r.Fleet, r.Record.State(), "C", "cache")
		case "profiles":
			if name == profilesActive {
				bonds[name] = activeProfiles(r.Fleet, r.Record.State(), r.facts["proc/"+routerProcess+"/id"])
			} else {
				bonds[name] = evidenceDigest(r.Fleet, r.Record.State(), "F", "profile")
			}
		}
	}
	return bonds
}

// evidenceDigest identifies the distinct contents of one kind of evidence of the fleet's
// engines. Stale evidence counts until it is made again: only then is it known whether its
// content changed, and an engine that was added with the same content changes nothing.
func evidenceDigest(f fleet.Fleet, s record.State, gate, kind string) string {
	contents := map[string]bool{}
	for _, e := range f.Engines {
		if entry, ok := s.Gates[gate].Evidence[record.NewKey(gate, kind, e.IID)]; ok {
			contents[entry.Ref.SHA256] = true
		}
	}
	if len(contents) == 0 {
		return ""
	}
	return digestOf(sortedKeys(contents))
}

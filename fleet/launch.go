package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Resolved is the launch of one engine with every name filled in. It holds no secret:
// Secrets are references.
type Resolved struct {
	IID       string               `json:"iid"`
	Host      string               `json:"host"`
	Kind      string               `json:"kind"`
	Argv      []string             `json:"argv,omitempty"`
	Env       map[string]string    `json:"env,omitempty"`
	Secrets   map[string]SecretRef `json:"secrets,omitempty"`
	Image     string               `json:"image,omitempty"`
	Runtime   string               `json:"runtime,omitempty"`
	Unit      string               `json:"unit,omitempty"`
	Scope     string               `json:"scope,omitempty"`
	Container *Container           `json:"container,omitempty"`
	GPUs      []string             `json:"gpus,omitempty"`
	Workers   []string             `json:"workers,omitempty"`
	Rank      int                  `json:"rank,omitempty"`
	Meet      int                  `json:"rendezvous,omitempty"`
	// Built means that the whole command is in Argv, whatever an image begins with.
	Built bool `json:"built,omitempty"`
	// Shared names the GPU that the engine shares by the document's words, "" for none.
	Shared    string     `json:"-"`
	ModelDir  string     `json:"model_dir,omitempty"`
	URL       string     `json:"url"`
	Listen    string     `json:"listen"`
	Side      int        `json:"side_channel,omitempty"`
	UCX       string     `json:"ucx,omitempty"`
	Simulated *Simulated `json:"simulated,omitempty"`
	Within    Duration   `json:"-"`
	StopAfter Duration   `json:"-"`
}

// Digest identifies the launch: SHA-256 of its JSON, time limits left out.
func (r Resolved) Digest() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("marshal launch: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ByID returns the engine with the id.
func (f Fleet) ByID(iid string) (Engine, bool) {
	for _, e := range f.Engines {
		if e.IID == iid {
			return e, true
		}
	}
	return Engine{}, false
}

// EngineIDs lists the engines in fleet order.
func (f Fleet) EngineIDs() []string {
	ids := make([]string, len(f.Engines))
	for i, e := range f.Engines {
		ids[i] = e.IID
	}
	return ids
}

// EngineHosts lists the hosts that carry ranks of engines, sorted.
func (f Fleet) EngineHosts() []string {
	if f.Deploy == nil {
		return nil
	}
	set := map[string]bool{}
	for _, e := range f.Engines {
		p := f.Deploy.Engines[e.IID]
		set[p.Host] = true
		for _, w := range p.Workers {
			set[w] = true
		}
	}
	return sorted(set)
}

// WorkHosts lists the hosts that carry engines, a router or the monitoring, sorted.
// Hosts that only forward connections are left out.
func (f Fleet) WorkHosts() []string {
	if f.Deploy == nil {
		return nil
	}
	set := map[string]bool{}
	for _, h := range f.EngineHosts() {
		set[h] = true
	}
	if f.Deploy.Router.Host != "" {
		set[f.Deploy.Router.Host] = true
	}
	if s := f.Deploy.Router.Standby; s != nil {
		set[s.Host] = true
	}
	if f.Deploy.Monitoring != nil {
		set[f.MonitoringHost()] = true
	}
	return sorted(set)
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// ModelDirs lists the checkpoint folders that the engines of a host read, sorted.
func (f Fleet) ModelDirs(host string) []string {
	return f.ofLaunches(host, func(l Launch) string { return l.ModelDir })
}

// Images lists the container images that the engines of a host run, sorted, each with its
// runtime before it: "docker sha256:…".
func (f Fleet) Images(host string) []string {
	return f.ofLaunches(host, func(l Launch) string {
		if l.Kind != LaunchContainer {
			return ""
		}
		return cmp.Or(l.Runtime, "docker") + " " + l.Image
	})
}

// LaunchOf returns the launch of an engine; false when the document names none.
func (f Fleet) LaunchOf(iid string) (Launch, bool) {
	if f.Deploy == nil {
		return Launch{}, false
	}
	l, ok := f.Deploy.Launch[cmp.Or(f.Deploy.Engines[iid].Launch, f.Deploy.Defaults.Launch)]
	return l, ok
}

// ofLaunches collects one property of the launches of a host's engines, sorted, each value
// once, empty ones left out.
func (f Fleet) ofLaunches(host string, of func(Launch) string) []string {
	if f.Deploy == nil {
		return nil
	}
	set := map[string]bool{}
	for _, e := range f.Engines {
		if p := f.Deploy.Engines[e.IID]; p.Host == host || slices.Contains(p.Workers, host) {
			if l, ok := f.LaunchOf(e.IID); ok {
				set[of(l)] = true
			}
		}
	}
	delete(set, "")
	return sorted(set)
}

// VisibleDevices are the variables that say which GPUs a process sees.
var VisibleDevices = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// HostOf returns the id of the engine's host.
func (f Fleet) HostOf(iid string) string {
	if f.Deploy == nil {
		return ""
	}
	return f.Deploy.Engines[iid].Host
}

// FabricAddress returns the address that carries the host's KV: the configured one,
// else the host part of its first engine's URL, else its SSH address.
func (f Fleet) FabricAddress(host string) string {
	h := f.Deploy.Hosts[host]
	if h.FabricAddress != "" {
		return h.FabricAddress
	}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) == host {
			if u, err := url.Parse(e.URL); err == nil && u.Hostname() != "" {
				return u.Hostname()
			}
		}
	}
	return h.Address
}

// Resolve fills the launch of an engine's first rank. It fails when the document names
// no such engine, host or launch; schema reports these with positions.
func (f Fleet) Resolve(iid string) (Resolved, error) { return f.ResolveRank(iid, 0) }

// ResolveRank fills the launch of one rank of an engine.
func (f Fleet) ResolveRank(iid string, rank int) (Resolved, error) {
	e, ok := f.ByID(iid)
	if !ok || f.Deploy == nil {
		return Resolved{}, fmt.Errorf("resolve launch of engine %q: not in the fleet's deploy section", iid)
	}
	place := f.Deploy.Engines[iid]
	on := place.Host
	if rank > len(place.Workers) || rank < 0 {
		return Resolved{}, fmt.Errorf("resolve launch of engine %q: it has no rank %d", iid, rank)
	} else if rank > 0 {
		on = place.Workers[rank-1]
	}
	name := place.Launch
	if name == "" {
		name = f.Deploy.Defaults.Launch
	}
	l, ok := f.Deploy.Launch[name]
	if !ok {
		return Resolved{}, fmt.Errorf("resolve launch of engine %q: no launch named %q", iid, name)
	}
	host, ok := f.Deploy.Hosts[on]
	if !ok {
		return Resolved{}, fmt.Errorf("resolve launch of engine %q: no host named %q", iid, on)
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Hostname() == "" {
		return Resolved{}, fmt.Errorf("resolve launch of engine %q: %q is no URL with a host", iid, e.URL)
	}
	ports := l.Ports
	if place.Ports != nil {
		ports = *place.Ports
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
		if port == "" {
			port = "80"
		}
	}
	r := Resolved{
		IID: iid, Host: on, Kind: l.Kind, Secrets: l.Secrets, Image: l.Image, Runtime: l.Runtime,
		ModelDir: l.ModelDir, URL: e.URL, Listen: net.JoinHostPort(u.Hostname(), port), Side: ports.SideChannel, UCX: ports.UCX,
		Simulated: l.Simulated, Within: l.Within, StopAfter: l.StopAfter,
		Scope: l.Scope, Container: l.Container, GPUs: place.GPUs, Workers: place.Workers, Rank: rank, Meet: ports.Rendezvous,
	}
	listen := u.Hostname()
	if rank > 0 {
		listen = f.FabricAddress(on)
		r.Listen = ""
	}
	fill := strings.NewReplacer("{port}", port, "{listen}", listen, "{iid}", iid, "{model}", f.Model, "{host}", on,
		"{side_channel}", strconv.Itoa(ports.SideChannel), "{ucx}", ports.UCX, "{root}", host.Root, "{run_dir}", path.Join(host.Root, "run"),
		"{rank}", strconv.Itoa(rank), "{nodes}", strconv.Itoa(1+len(place.Workers)), "{head}", u.Hostname(), "{rendezvous}", strconv.Itoa(ports.Rendezvous))
	r.Unit = fill.Replace(l.Unit)
	if d := e.SharedDevice; d != nil {
		r.Shared = cmp.Or(d.GPUUUID, on+"/"+d.Group)
	}
	for _, a := range l.Argv {
		r.Argv = append(r.Argv, fill.Replace(a))
	}
	if len(l.Env) > 0 {
		r.Env = map[string]string{}
		for k, v := range l.Env {
			r.Env[k] = fill.Replace(v)
		}
	}
	if l.Kind == LaunchSimulated {
		r.demandKey(f)
	}
	if l.Serve != nil {
		r.serve(f, *l.Serve, listen, port, u.Hostname())
	}
	return r, nil
}

// SecretRefs lists every secret that the fleet refers to, sorted, each once.
func (f Fleet) SecretRefs() []SecretRef {
	set := map[string]bool{}
	if name := f.Engine.EngineAPIKeyEnv; name != "" {
		set["env:"+name] = true
	}
	if d := f.Deploy; d != nil {
		set[string(d.Sign.Passphrase)], set[string(d.Router.HTTP.ControlToken)] = true, true
		if e := d.Router.Lease.Etcd; e != nil {
			set[string(e.Password)] = true
		}
		for _, l := range d.Launch {
			for _, ref := range l.Secrets {
				set[string(ref)] = true
			}
		}
		for _, h := range d.Hosts {
			set[string(h.Passphrase)], set[string(h.Password)] = true, true
		}
	}
	delete(set, "")
	out := make([]SecretRef, 0, len(set))
	for _, ref := range sorted(set) {
		out = append(out, SecretRef(ref))
	}
	return out
}

// Workers counts the further ranks of an engine.
func (f Fleet) Workers(iid string) int {
	if f.Deploy == nil {
		return 0
	}
	return len(f.Deploy.Engines[iid].Workers)
}

// RankProcess is the name under which a rank of an engine runs on its host.
func RankProcess(iid string, rank int) string {
	if rank == 0 {
		return "engine-" + iid
	}
	return "engine-" + iid + "-rank-" + strconv.Itoa(rank)
}

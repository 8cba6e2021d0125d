package discover

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover/network"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Drafted is a fleet file made of what was found.
type Drafted struct {
	Text []byte
	// Fill lists what an operator must still decide, each marked FILL in the text.
	Fill []string
}

// Draft writes a commented fleet file from the evidence of gate A: one engine for each GPU
// that was found, the fastest common interface as fabric, ports that are free on every host.
// What it could not find out keeps a placeholder. Run names the run in the heading.
func Draft(v gates.View, run string) Drafted {
	b := &bench{view: v, fleet: v.Fleet, addresses: fabricAddresses(v.Fleet)}
	d := &draft{bench: b, seen: b.read(Gate{})}
	d.findings = Gate{}.Judge(v)
	d.choose()
	var body strings.Builder
	d.w = &body
	d.top()
	d.deploy()
	var out strings.Builder
	d.w = &out
	d.heading(run)
	out.WriteString(body.String())
	return Drafted{[]byte(out.String()), d.fill}
}

type draft struct {
	*bench
	seen     seen
	w        *strings.Builder
	findings []record.Finding
	fill     []string

	hosts     []string // with engines
	link      string   // fabric interface, "" = any
	transport string
	product   string
	gpus      map[string][]device
	engines   []drafted
}

// drafted is one engine of the draft.
type drafted struct {
	iid, host, role, launch string
	address                 string
	n                       int // among the engines of its address
}

// choose decides what the text then says.
func (d *draft) choose() {
	d.hosts = d.fleet.EngineHosts()
	d.gpus = map[string][]device{}
	products := map[string]bool{}
	for _, id := range d.hosts {
		d.gpus[id] = d.seen.hardware[id].devices()
		for _, g := range d.gpus[id] {
			products[g.name] = true
		}
	}
	if with := slices.DeleteFunc(slices.Clone(d.hosts), func(id string) bool { return len(d.gpus[id]) == 0 }); len(with) > 0 {
		d.hosts = with // others carry no engine
	}
	if len(products) == 1 {
		d.product = sortedTrue(products)[0]
	}
	d.link = d.fastest()
	d.transport = "tcp"
	if d.link != "" && !slices.ContainsFunc(d.hosts, func(id string) bool { return !d.moves(id) }) {
		d.transport = "rdma"
	}
	at := map[string]int{} // engines by address: hosts behind one need different ports
	for _, id := range d.hosts {
		for n := range max(1, len(d.gpus[id])) {
			e := drafted{host: id, launch: "sim", address: d.address(id)}
			e.n = at[e.address]
			at[e.address]++
			if len(d.gpus[id]) > 0 {
				e.launch = fmt.Sprintf("gpu%d", n)
			}
			d.engines = append(d.engines, e)
		}
	}
	prefill := (len(d.engines) + 1) / 2
	if len(d.engines) < 2 {
		prefill = 0
	}
	for i := range d.engines {
		e := &d.engines[i]
		if e.iid, e.role = fmt.Sprintf("d%d", i-prefill), "decode"; i < prefill {
			e.iid, e.role = fmt.Sprintf("p%d", i), "prefill"
		}
	}
}

// fastest is the interface, of one name on every engine host, that is up with a routable
// address and has the highest speed of its slowest holder.
func (d *draft) fastest() string {
	speeds := map[string][]int{}
	for _, id := range d.hosts {
		n := d.seen.network[id]
		for _, l := range n.Links {
			held := slices.ContainsFunc(network.Routable(n.Addresses), func(a network.Address) bool { return a.Link == l.Name })
			if l.Up() && held && plainLink(l.Name) {
				speeds[l.Name] = append(speeds[l.Name], l.Mbps)
			}
		}
	}
	best, most := "", -1
	for _, name := range sortedKeysOf(speeds) {
		if s := speeds[name]; len(s) == len(d.hosts) && slices.Min(s) > most {
			best, most = name, slices.Min(s)
		}
	}
	return best
}

// plainLink leaves out what containers and tunnels bring.
func plainLink(name string) bool {
	for _, p := range []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "tun", "tap", "wg", "tailscale"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return true
}

func sortedKeysOf[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// moves reports whether a host has an active RDMA port on the chosen interface.
func (d *draft) moves(id string) bool {
	for _, r := range d.seen.hardware[id].RDMA {
		for _, p := range r.Ports {
			if p.State == "ACTIVE" && p.Net == d.link && (p.Layer != "Ethernet" || len(p.RoCEv2()) > 0) {
				return true
			}
		}
	}
	return false
}

// address is where a host's engines listen: on the fabric's interface, IPv4 before IPv6,
// else where the host is reached.
func (d *draft) address(id string) string {
	var found []netip.Addr
	for _, a := range network.Routable(d.seen.network[id].Addresses) {
		if d.link != "" && a.Link == d.link {
			found = append(found, a.Net.Addr())
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	if len(found) > 0 {
		return found[0].String()
	}
	return cmp.Or(d.fleet.Deploy.Hosts[id].Address, id)
}

package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/discover/hardware"
	"github.com/narwhal-fleet/narwhal/gates/discover/network"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// bus is the PCI function behind an interface; of a bond, that of its first member.
func (n Network) bus(name string) string {
	l, _ := network.Find(n.Links, name)
	if l.Bus != "" {
		return l.Bus
	}
	for _, b := range n.Bonds {
		if b.Name == name && len(b.Members) > 0 {
			m, _ := network.Find(n.Links, b.Members[0].Name)
			return m.Bus
		}
	}
	return ""
}

// fabric is the interface that carries a host's KV: the named one, else the one that holds
// its fabric address; "" when unknown.
func (b *bench) fabric(id string, n Network) string {
	if i := b.fleet.Deploy.Fabric.Interface; i != "" {
		return i
	}
	if a, ok := b.addresses[id]; ok {
		return network.Holder(n.Addresses, a)
	}
	return ""
}

func (b *bench) judgeNetwork(n Network) {
	b.key = networkKey(b.host)
	if i := b.fleet.Deploy.Fabric.Interface; i != "" {
		if _, ok := network.Find(n.Links, i); !ok {
			b.add("fabric-interface", "interface "+i, "none of that name", "set deploy.fabric.interface to one of the host's interfaces")
			return
		}
	}
	if !slices.Contains(b.fleet.EngineHosts(), b.host) {
		return
	}
	name := b.fabric(b.host, n)
	if l, ok := network.Find(n.Links, name); ok {
		b.judgeLink(n, l)
	}
	b.judgeRoutes(n)
}

func (b *bench) judgeLink(n Network, l network.Link) {
	if !l.Up() {
		b.add("fabric-down", "interface "+l.Name+" up", orNone(l.State), "look at cable and switch port; ip link show "+l.Name+" on the host")
	}
	if l.Duplex == "half" {
		b.add("fabric-duplex", "interface "+l.Name+" in full duplex", l.Duplex, "let host and switch negotiate")
	}
	for _, bond := range n.Bonds {
		if p := bond.Problems(); bond.Name == l.Name && len(p) > 0 {
			b.add("fabric-bond", "every member of "+bond.Name+" carries", strings.Join(p, "; "), "cat /proc/net/bonding/"+bond.Name+" on the host; compare with the switch's group")
		}
	}
}

// judgeRoutes checks the way to each peer. Without an ip that tells routes, gate D's
// measurement is the first to see them.
func (b *bench) judgeRoutes(n Network) {
	own, known := b.addresses[b.host]
	named := b.fleet.Deploy.Fabric.Interface
	if known && len(n.Addresses) > 0 {
		switch at := network.Holder(n.Addresses, own); {
		case at == "":
			b.add("fabric-address", own.String()+" on one of its interfaces", "on none", "set the engine's url or deploy.hosts."+b.host+".fabric_address to an address of the host")
		case named != "" && at != named:
			b.add("fabric-address", own.String()+" on "+named, "on "+at, "set fabric_address to an address of "+named+", or deploy.fabric.interface to "+at)
		}
	}
	var untold []string
	for _, peer := range peers(b.addresses, b.host) {
		r, ok := network.Way(n.Routes, peer)
		hint := "ip route get " + peer.String() + " on the host shows the way"
		switch {
		case !ok:
			untold = append(untold, peer.String())
		case r.Kind != "" && r.Kind != "unicast":
			b.add("fabric-route", "a way to "+peer.String(), "the route is "+r.Kind, hint)
		case named != "" && r.Dev != named:
			b.add("fabric-route", peer.String()+" through "+named, "through "+orNone(r.Dev), hint)
		case r.From.IsValid() && r.From != own.Unmap():
			b.add("fabric-source", "packets to "+peer.String()+" from "+own.String(), "from "+r.From.String(), "peers then answer another way than they are asked; "+hint).Note = named == ""
		}
	}
	if len(untold) > 0 {
		b.add("route-unknown", "the kernel tells the way to each peer", "nothing about "+strings.Join(untold, ", "), "install iproute2 4.15 or newer on the host").Note = true
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// judgeRDMA checks the devices of a fabric that moves KV by RDMA.
func (b *bench) judgeRDMA(s seen) {
	h, ok := s.hardware[b.host]
	if !ok || b.fleet.Deploy.Fabric.Transport != "rdma" || !b.real() {
		return
	}
	b.key = hardwareKey(b.host)
	if len(h.RDMA) == 0 {
		b.add("rdma-absent", "an RDMA device", "none in /sys/class/infiniband", "load the card's RDMA module, or set deploy.fabric.transport to tcp")
		return
	}
	if len(h.Unopened) > 0 {
		b.add("rdma-unopened", "user space opens every RDMA device", strings.Join(h.Unopened, ", ")+" missing in ibv_devinfo", "install the provider (rdma-core), and let the user open /dev/infiniband")
	}
	ports := b.ports(h)
	if len(ports) == 0 {
		b.add("rdma-port", "an active RDMA port"+b.onFabric(), states(h.RDMA), "rdma link show on the host; look at cable, switch port and subnet manager")
	}
	for _, p := range ports {
		if p.Layer == "Ethernet" && len(p.RoCEv2()) == 0 {
			b.add("rdma-gid", "a routable RoCE v2 address", fmt.Sprintf("%d GIDs, none of them", len(p.GIDs)), "give the interface an IP address; show_gids lists the table")
		}
	}
}

func (b *bench) onFabric() string {
	if i := b.fleet.Deploy.Fabric.Interface; i != "" {
		return " on " + i
	}
	return ""
}

// ports are the active ones that the fabric may use: those of its interface, where RoCE
// names one.
func (b *bench) ports(h Hardware) []hardware.Port {
	var out []hardware.Port
	for _, d := range h.RDMA {
		for _, p := range d.Ports {
			if i := b.fleet.Deploy.Fabric.Interface; p.State == "ACTIVE" && (i == "" || p.Net == "" || p.Net == i) {
				out = append(out, p)
			}
		}
	}
	return out
}

func states(ds []hardware.RDMA) string {
	var out []string
	for _, d := range ds {
		for _, p := range d.Ports {
			out = append(out, fmt.Sprintf("%s port %d %s", d.Name, p.Number, orNone(p.State)))
		}
	}
	return orNone(strings.Join(out, ", "))
}

// equalFabric compares what both ends of an edge must have alike.
func (b *bench) equalFabric(s seen) {
	mtu, speed, rate, firmware := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, id := range b.fleet.EngineHosts() {
		n := s.network[id]
		if l, ok := network.Find(n.Links, b.fabric(id, n)); ok {
			if l.MTU > 0 {
				mtu[id] = fmt.Sprintf("%d bytes", l.MTU)
			}
			if l.Mbps > 0 {
				speed[id] = fmt.Sprintf("%d Mbit/s", l.Mbps)
			}
		}
		if b.fleet.Deploy.Fabric.Transport != "rdma" {
			continue
		}
		for _, p := range b.ports(s.hardware[id]) {
			if p.Gbps > 0 {
				rate[id] = fmt.Sprintf("%d Gbit/s", p.Gbps)
			}
		}
		if ds := s.hardware[id].RDMA; len(ds) > 0 {
			firmware[id] = ds[0].Firmware
		}
	}
	b.equal(mtu, networkKey, func(first string) *record.Finding {
		f := b.add("fabric-mtu", "", "", "set one MTU on hosts and switches: the larger packets of one end are lost or cut at the other")
		f.Message = fmt.Sprintf("the fabric interfaces of hosts %s and %s have different MTUs", first, b.host)
		return f
	})
	b.equal(speed, networkKey, func(first string) *record.Finding {
		f := b.add("fabric-speed", "", "", "look at cable and switch port of the slower end")
		f.Message = fmt.Sprintf("the fabric interfaces of hosts %s and %s have different speeds", first, b.host)
		return f
	})
	b.equal(rate, hardwareKey, func(first string) *record.Finding {
		f := b.add("rdma-rate", "", "", "look at cable and switch port of the slower end")
		f.Message = fmt.Sprintf("the RDMA ports of hosts %s and %s have different rates", first, b.host)
		return f
	})
	b.equal(firmware, hardwareKey, func(first string) *record.Finding {
		f := b.add("rdma-firmware", "", "", "install one firmware on all cards")
		f.Message, f.Note = fmt.Sprintf("the RDMA cards of hosts %s and %s have different firmware", first, b.host), true
		return f
	})
}

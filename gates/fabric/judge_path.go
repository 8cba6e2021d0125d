package fabric

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// sizes finds interfaces whose MTU is another than the fleet's, and ways on which datagrams
// vanish that both interfaces would let through.
func (e evidence) sizes() []record.Finding {
	mtu := map[string]int{}
	small, silent := map[Edge]bool{}, map[Edge]bool{}
	want, got := map[Edge]int{}, map[Edge]int{}
	e.each(func(edge Edge, d Direction, from, to End, _ string) {
		if mtu[edge.From] == 0 || from.MTU < mtu[edge.From] {
			mtu[edge.From] = from.MTU
		}
		want[edge], got[edge] = min(from.MTU, to.MTU, mostMTU), d.PathMTU
		silent[edge] = d.PathMTU == 0
		small[edge] = d.PathMTU > 0 && d.PathMTU < want[edge]
	})
	var out []record.Finding
	usual := common(mtu)
	for _, h := range e.hosts {
		if m, ok := mtu[h]; ok && m != usual {
			edge := Edge{From: h, To: other(e.hosts, h)}
			out = append(out, record.Finding{Code: "mtu-differs", Host: h, Want: fmt.Sprintf("%d bytes", usual), Got: fmt.Sprintf("%d bytes", m), Evidence: string(pairKey(pairOf(e.hosts, edge))),
				Message: fmt.Sprintf("host %s: the MTU of its fabric interface is %d bytes, the others' is %d", h, m, usual),
				Hint:    fmt.Sprintf("set one MTU on every host and switch port of the fabric (ip link set dev IFACE mtu %d); then %s", usual, again)})
		}
	}
	for _, c := range blame(e.hosts, small) {
		out = append(out, record.Finding{Code: "path-mtu", Host: c.at(), Want: fmt.Sprintf("%d bytes", want[c.edge]), Got: fmt.Sprintf("%d bytes", got[c.edge]), Evidence: string(pairKey(pairOf(e.hosts, c.edge))),
			Message: fmt.Sprintf("%s: datagrams above %d bytes vanish on the way, both interfaces take %d", c.name(), got[c.edge], want[c.edge]),
			Hint:    "a switch port, a bridge or a tunnel between them has a smaller MTU and tells nobody; large messages hang there. Raise it, or lower the hosts'; then " + again})
	}
	for _, c := range blame(e.hosts, silent) {
		out = append(out, record.Finding{Code: "probe-blocked", Host: c.at(), Want: "an answer", Got: "none", Evidence: string(pairKey(pairOf(e.hosts, c.edge))),
			Message: fmt.Sprintf("%s: no datagram of any size is answered, so losses and sizes are unknown", c.name()),
			Hint:    fmt.Sprintf("let UDP through beside TCP on the tester's port (%s); then %s", Address(e.fleet, c.edge.To), again)})
	}
	return out
}

func other(hosts []string, h string) string {
	for _, o := range hosts {
		if o != h {
			return o
		}
	}
	return h
}

// common is the value that most hosts have; the largest of those that as many have.
func common(of map[string]int) int {
	count := map[int]int{}
	for _, v := range of {
		count[v]++
	}
	best := 0
	for _, v := range slices.Sorted(maps.Keys(count)) {
		if count[v] >= count[best] {
			best = v
		}
	}
	return best
}

// routes holds both ends to the fleet's interface, and the way out to the way back.
func (e evidence) routes() []record.Finding {
	var out []record.Finding
	e.each(func(edge Edge, _ Direction, from, to End, at string) {
		iface, src := cutRoute(from.Route)
		if want := e.fab.Interface; want != "" && iface != want {
			got := from.Route
			if got == "" {
				got = "an unknown interface"
			}
			out = append(out, record.Finding{Code: "edge-interface", Host: edge.From, Want: want, Got: got, Evidence: at,
				Message: fmt.Sprintf("edge %s → %s: host %s routes over %s, want %s", edge.From, edge.To, edge.From, got, want),
				Hint:    fmt.Sprintf("fix the route (ip route get %s on %s) or deploy.fabric.interface; then %s", e.fleet.FabricAddress(edge.To), edge.From, again)})
		}
		if why, want, got := uneven(e.fleet.FabricAddress(edge.From), src, from, to); why != "" {
			out = append(out, record.Finding{Code: "edge-asymmetric", Host: edge.From, Want: want, Got: got, Evidence: at,
				Message: fmt.Sprintf("edge %s → %s: %s", edge.From, edge.To, why),
				Hint:    "give both ends a route over the same network (ip route get on both, rp_filter, policy rules); then " + again})
		}
	})
	return out
}

// uneven says why the way out is another than the way back, "" when it is not known to be.
// The way back leads to the host's fabric address.
func uneven(address, src string, from, to End) (why, want, got string) {
	back, err := netip.ParseAddr(address)
	out, err2 := netip.ParseAddr(src)
	switch {
	case err == nil && err2 == nil && back.Unmap() != out.Unmap():
		return fmt.Sprintf("packets leave from %s, and answers go to %s", out, back), back.String(), out.String()
	case err == nil && to.Seen != "" && to.Seen != src && src != "" && seenElse(to.Seen, back):
		return fmt.Sprintf("the other end sees packets of %s come from %s: they are translated on the way", src, to.Seen), src, to.Seen
	case from.Gateway != "" && to.Gateway == "":
		return fmt.Sprintf("packets go through %s, and answers come straight", from.Gateway), "a straight way", "through " + from.Gateway
	}
	return "", "", ""
}

func seenElse(seen string, address netip.Addr) bool {
	at, err := netip.ParseAddr(seen)
	return err == nil && at.Unmap().WithZone("") != address.Unmap().WithZone("")
}

// damage finds counters that rise when a link is damaged.
func (e evidence) damage() []record.Finding {
	var out []record.Finding
	sum := map[string]map[string]int64{}
	at := map[string]string{}
	for _, t := range pairs(e.hosts) {
		p, ok := e.pairs[t]
		if !ok {
			continue
		}
		for _, side := range []struct {
			host string
			rose map[string]int64
		}{{t.A, p.CountersA}, {t.B, p.CountersB}} {
			for name, n := range side.rose {
				if damaged(name) && n > 0 {
					if sum[side.host] == nil {
						sum[side.host], at[side.host] = map[string]int64{}, string(pairKey(t))
					}
					sum[side.host][name] += n
				}
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(sum)) {
		for _, name := range slices.Sorted(maps.Keys(sum[h])) {
			out = append(out, record.Finding{Code: "link-errors", Host: h, Want: name + " 0", Got: fmt.Sprintf("%s %d", name, sum[h][name]), Evidence: at[h],
				Message: fmt.Sprintf("host %s: %s rose by %d while its edges were measured", h, name, sum[h][name]),
				Hint:    "the link itself is damaged: clean or replace cable and transceiver, look at the switch port; then " + again})
		}
	}
	return out
}

// Package network reads a host's interfaces, bonds, addresses and routes, as the kernel's
// /sys and /proc list them and as ip prints them.
//
// It promises to take any bytes and to keep what was not told as unknown. It refuses to
// name a route that the kernel did not.
package network

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Link is one network interface.
type Link struct {
	Name    string `json:"name"`
	MTU     int    `json:"mtu,omitempty"`   // bytes; 0 = not told
	State   string `json:"state,omitempty"` // up, down, unknown, …
	Carrier int    `json:"carrier"`         // 1 = yes, 0 = no, -1 = not told
	Mbps    int    `json:"mbps,omitempty"`  // 0 = not told, as of virtual links
	Duplex  string `json:"duplex,omitempty"`
	Master  string `json:"master,omitempty"`
	Bus     string `json:"bus,omitempty"` // PCI function
	NUMA    int    `json:"numa"`          // -1 = not told
}

// Up reports whether the link can carry packets. The kernel's state follows the carrier a
// moment later, and some drivers, as that of the loopback, do not keep it.
func (l Link) Up() bool {
	switch l.State {
	case "up":
		return true
	case "down":
		return l.Carrier == 1
	case "unknown":
		return l.Carrier != 0
	}
	return false
}

var (
	linkRE  = regexp.MustCompile(`^[^\s/|]{1,32}$`)
	busRE   = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	stateRE = regexp.MustCompile(`^[a-z]{1,20}$`)
)

const maxLinks = 4096

// ParseLinks reads lines "name|mtu|state|carrier|speed|duplex|master|bus|numa".
func ParseLinks(lines []string) []Link {
	var out []Link
	for _, s := range lines {
		f := strings.Split(s, "|")
		if len(f) != 9 || !linkRE.MatchString(f[0]) || len(out) == maxLinks {
			continue
		}
		l := Link{Name: f[0], MTU: positive(f[1], 1<<20), Carrier: -1, Mbps: positive(f[4], 1<<24), NUMA: -1}
		if stateRE.MatchString(f[2]) {
			l.State = f[2]
		}
		if f[3] == "0" || f[3] == "1" {
			l.Carrier = int(f[3][0] - '0')
		}
		if f[5] == "full" || f[5] == "half" {
			l.Duplex = f[5]
		}
		if linkRE.MatchString(f[6]) {
			l.Master = f[6]
		}
		if busRE.MatchString(f[7]) {
			l.Bus = f[7]
		}
		if n, err := strconv.Atoi(f[8]); err == nil && n >= 0 && n < 4096 {
			l.NUMA = n
		}
		out = append(out, l)
	}
	return out
}

func positive(s string, most int) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > most {
		return 0
	}
	return n
}

// Find returns the link of a name.
func Find(links []Link, name string) (Link, bool) {
	for _, l := range links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

// Address is one address of an interface.
type Address struct {
	Link string       `json:"link"`
	Net  netip.Prefix `json:"net"`
}

// ParseAddresses reads lines "interface family address/bits", or of ip -o addr show: a number before them and
// more behind.
func ParseAddresses(lines []string) []Address {
	var out []Address
	for _, s := range lines {
		f := strings.Fields(s)
		if len(f) > 3 && strings.HasSuffix(f[0], ":") {
			f = f[1:4]
		}
		if len(f) != 3 || !linkRE.MatchString(f[0]) || len(out) == maxLinks {
			continue
		}
		p, err := netip.ParsePrefix(f[2])
		if err != nil { // a point-to-point address has no bits
			a, aerr := netip.ParseAddr(f[2])
			if aerr != nil || a.Zone() != "" {
				continue
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		name, _, _ := strings.Cut(f[0], "@")
		out = append(out, Address{Link: name, Net: p})
	}
	return out
}

// Routable lists the addresses that other hosts can reach: global, neither loopback nor
// link-local nor multicast.
func Routable(as []Address) []Address {
	var out []Address
	for _, a := range as {
		if ip := a.Net.Addr(); ip.IsGlobalUnicast() {
			out = append(out, a)
		}
	}
	return out
}

// Holder names the interface that holds an address, "" when none does.
func Holder(as []Address, ip netip.Addr) string {
	for _, a := range as {
		if a.Net.Addr() == ip.Unmap() {
			return a.Link
		}
	}
	return ""
}

// Route is the way to one address.
type Route struct {
	To   netip.Addr `json:"to"`
	Dev  string     `json:"dev"`
	From netip.Addr `json:"from"` // source address; the zero value when not told
	Via  netip.Addr `json:"via"`  // gateway; the zero value for none
	// Kind is "local" for an address of the host itself, "unreachable", "blackhole", …
	Kind string `json:"kind,omitempty"`
}

// wire is a route as "ip -j route get" writes it.
type wire struct {
	Type    string `json:"type"`
	Dst     string `json:"dst"`
	Gateway string `json:"gateway"`
	Dev     string `json:"dev"`
	Prefsrc string `json:"prefsrc"`
}

const maxRoutes = 8192

// ParseRoutes reads what "ip -j route get" printed, one array for each address; several
// arrays may stand in a row. What follows the first text that is no array is left out.
func ParseRoutes(lines []string) []Route {
	var out []Route
	dec := json.NewDecoder(strings.NewReader(strings.Join(lines, "\n")))
	for len(out) < maxRoutes {
		var list []wire
		if dec.Decode(&list) != nil {
			return out
		}
		for _, w := range list {
			if r, ok := w.route(); ok && len(out) < maxRoutes {
				out = append(out, r)
			}
		}
	}
	return out
}

func (w wire) route() (Route, bool) {
	to, err := netip.ParseAddr(w.Dst)
	if err != nil || to.Zone() != "" || w.Dev != "" && !linkRE.MatchString(w.Dev) || w.Type != "" && !stateRE.MatchString(w.Type) {
		return Route{}, false
	}
	r := Route{To: to.Unmap(), Dev: w.Dev, Kind: w.Type}
	if a, err := netip.ParseAddr(w.Prefsrc); err == nil {
		r.From = a.Unmap()
	}
	if a, err := netip.ParseAddr(w.Gateway); err == nil {
		r.Via = a.Unmap()
	}
	return r, true
}

// Way returns the route to an address.
func Way(rs []Route, to netip.Addr) (Route, bool) {
	for _, r := range rs {
		if r.To == to.Unmap() {
			return r, true
		}
	}
	return Route{}, false
}

package route

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sys is where the kernel tells about its interfaces.
const Sys = "/sys"

// Way is the route to an address with what its interface says of the link.
type Way struct {
	Route     string // "interface source", or "unknown"
	Gateway   string // next hop, "" on the link itself
	MTU       int    // of the interface in bytes, 0 = unknown
	SpeedMbps int    // of the interface, 0 = it does not say
}

// Towards looks at the way to an IP address or a name that resolves. sys is the root of sysfs.
func Towards(sys, dst string) Way {
	iface, src, to := choose(dst)
	if src == "" {
		return Way{Route: unknown}
	}
	return Way{Route: iface + " " + src, Gateway: Gateway(to), MTU: MTU(iface), SpeedMbps: speed(sys, iface)}
}

// String is one line that is another when any part of the way is, as
// "eth1 192.0.2.11 via 192.0.2.1 mtu 9000 speed 100000". What is not known is left out.
func (w Way) String() string {
	s := w.Route
	if w.Gateway != "" {
		s += " via " + w.Gateway
	}
	if w.MTU > 0 {
		s += " mtu " + strconv.Itoa(w.MTU)
	}
	if w.SpeedMbps > 0 {
		s += " speed " + strconv.Itoa(w.SpeedMbps)
	}
	return s
}

// speed is the interface's rate in Mbit/s, 0 when it does not say.
func speed(sys, iface string) int {
	if iface == "" || iface != filepath.Base(iface) {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(sys, "class/net", iface, "speed"))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return max(0, n)
}

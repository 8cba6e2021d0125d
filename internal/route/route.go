// Package route tells which way the kernel would send packets to an address.
//
// It promises to ask the kernel without sending anything, and refuses to guess:
// what cannot be told is "unknown".
package route

import (
	"net"
	"net/netip"
)

// To returns "interface source" of the route to an address, as "eth1 192.0.2.11".
// The destination is an IP address or a name that resolves.
func To(dst string) string {
	iface, src := Via(dst)
	if src == "" {
		return "unknown"
	}
	return iface + " " + src
}

// Via returns the interface and the source address of the route, "" when unknown.
// Connecting a UDP socket makes the kernel choose both without a packet.
func Via(dst string) (iface, src string) {
	conn, err := net.Dial("udp", net.JoinHostPort(dst, "9"))
	if err != nil {
		return "", ""
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return "", ""
	}
	ip := local.AddrPort().Addr().Unmap()
	return owner(ip), ip.String()
}

// owner names the interface that holds the address.
func owner(ip netip.Addr) string {
	list, err := net.Interfaces()
	if err != nil {
		return "?"
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if held, ok := netip.AddrFromSlice(n.IP); ok && held.Unmap() == ip {
					return i.Name
				}
			}
		}
	}
	if ip.IsLoopback() {
		for _, i := range list {
			if i.Flags&net.FlagLoopback != 0 {
				return i.Name
			}
		}
	}
	return "?"
}

// MTU returns the interface's MTU in bytes, 0 when unknown.
func MTU(iface string) int {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return 0
	}
	return i.MTU
}

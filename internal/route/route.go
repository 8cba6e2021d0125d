// Package route tells which way the kernel would send packets to an address.
//
// It promises to ask the kernel without sending anything, and refuses to guess:
// what cannot be told is "unknown".
package route

import (
	"net"
	"net/netip"
)

// unknown is a route that cannot be told.
const unknown = "unknown"

// Via returns the interface and the source address of the route, "" when unknown. The
// destination is an IP address or a name that resolves.
func Via(dst string) (iface, src string) {
	iface, src, _ = choose(dst)
	return iface, src
}

// choose connects a UDP socket, which makes the kernel choose interface and source without a
// packet. to is the address that a name stands for.
func choose(dst string) (iface, src, to string) {
	conn, err := net.Dial("udp", net.JoinHostPort(dst, "9"))
	if err != nil {
		return "", "", ""
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.UDPAddr)
	if !ok || !ok2 {
		return "", "", ""
	}
	ip := local.AddrPort().Addr().Unmap()
	return owner(ip), ip.String(), remote.IP.String()
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

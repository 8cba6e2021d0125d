package route

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"time"
)

// Gateway returns the next hop on the way to an address, "" when it is on the link itself
// or unknown. It asks the kernel's routing table and sends nothing.
func Gateway(dst string) string {
	to, err := netip.ParseAddr(dst)
	if err != nil {
		return ""
	}
	to = to.Unmap().WithZone("")
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	limit := syscall.NsecToTimeval(time.Second.Nanoseconds())
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)
	if syscall.Sendto(fd, question(to), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}) != nil {
		return ""
	}
	buf := make([]byte, 1<<14)
	n, _, err := syscall.Recvfrom(fd, buf, 0)
	if err != nil || n < 0 || n > len(buf) {
		return ""
	}
	messages, err := syscall.ParseNetlinkMessage(buf[:n])
	if err != nil {
		return ""
	}
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return ""
		}
		for _, a := range attrs {
			if a.Attr.Type == syscall.RTA_GATEWAY {
				if hop, ok := netip.AddrFromSlice(a.Value); ok {
					return hop.String()
				}
			}
		}
	}
	return ""
}

// question is an RTM_GETROUTE message for one destination.
func question(to netip.Addr) []byte {
	family, bits := byte(syscall.AF_INET), byte(32)
	if to.Is6() {
		family, bits = syscall.AF_INET6, 128
	}
	attr := binary.NativeEndian.AppendUint16(nil, uint16(4+len(to.AsSlice())))
	attr = binary.NativeEndian.AppendUint16(attr, syscall.RTA_DST)
	attr = append(attr, to.AsSlice()...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(syscall.NLMSG_HDRLEN+syscall.SizeofRtMsg+len(attr)))
	b = binary.NativeEndian.AppendUint16(b, syscall.RTM_GETROUTE)
	b = binary.NativeEndian.AppendUint16(b, syscall.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence
	b = binary.NativeEndian.AppendUint32(b, 0) // port: the kernel's
	b = append(b, family, bits, 0, 0, 0, 0, 0, 0)
	b = append(b, 0, 0, 0, 0)
	return append(b, attr...)
}

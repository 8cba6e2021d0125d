package fabric

import (
	"net"

	"golang.org/x/sys/unix"
)

// segments reads how many segments a socket sent, and sent again.
func segments(c net.Conn) (sent, again int64) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return 0, 0
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			sent, again = int64(info.Segs_out), int64(info.Total_retrans)
		}
	})
	return sent, again
}

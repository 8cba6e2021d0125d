//go:build unix

package router

import (
	"net"
	"syscall"
)

// pending reports whether bytes of a connection lie unread in this machine, which a server that is
// busy elsewhere will take in a moment.
func pending(conn net.Conn) bool {
	if s, ok := conn.(*spareConn); ok {
		conn = s.Conn
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	// Control, unlike Read, does not wait for who reads the connection.
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		there = err == nil && n > 0
	})
	return there
}

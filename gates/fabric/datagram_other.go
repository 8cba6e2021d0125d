//go:build !linux

package fabric

import (
	"errors"
	"net"
)

// neverFragment is known for Linux hosts alone.
func neverFragment(*net.UDPConn, bool) error {
	return errors.New("datagrams that must not be cut are sent from Linux hosts alone")
}

func overrunOf([]byte) (uint32, bool) { return 0, false }

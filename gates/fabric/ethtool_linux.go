package fabric

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of the kernel's ethtool interface (linux/ethtool.h).
const (
	ethtoolSetInfo     = 0x37 // how many strings a set has
	ethtoolStrings     = 0x1b
	ethtoolStats       = 0x1d
	statisticsSet      = 1
	nameBytes          = 32
	maxDriverCounters  = 4096
	interfaceNameBytes = 16
)

// ethtoolRequest is struct ifreq with a pointer.
type ethtoolRequest struct {
	name [interfaceNameBytes]byte
	data unsafe.Pointer
	_    [16]byte
}

// driverCounters are the counters that the interface's driver keeps, as ethtool -S shows
// them; none where the driver keeps none.
func driverCounters(iface string) map[string]int64 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	call := func(b []byte) bool {
		var r ethtoolRequest
		copy(r.name[:interfaceNameBytes-1], iface)
		r.data = unsafe.Pointer(&b[0])
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
		runtime.KeepAlive(b)
		return errno == 0
	}
	order := binary.NativeEndian
	info := make([]byte, 24) // cmd, reserved, mask of sets, one length
	order.PutUint32(info, ethtoolSetInfo)
	order.PutUint64(info[8:], 1<<statisticsSet)
	if !call(info) || order.Uint64(info[8:]) == 0 {
		return nil
	}
	n := int(order.Uint32(info[16:]))
	if n <= 0 || n > maxDriverCounters {
		return nil
	}
	names := make([]byte, 12+n*nameBytes)
	order.PutUint32(names, ethtoolStrings)
	order.PutUint32(names[4:], statisticsSet)
	order.PutUint32(names[8:], uint32(n))
	values := make([]byte, 8+n*8)
	order.PutUint32(values, ethtoolStats)
	order.PutUint32(values[4:], uint32(n))
	if !call(names) || !call(values) || int(order.Uint32(names[8:])) != n || int(order.Uint32(values[4:])) != n {
		return nil
	}
	out := make(map[string]int64, n)
	for i := range n {
		name, _, _ := bytes.Cut(names[12+i*nameBytes:12+(i+1)*nameBytes], []byte{0})
		out[string(name)] = int64(order.Uint64(values[8+i*8:]))
	}
	return out
}

package process

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Socket is a listening TCP socket of this machine, as the kernel lists it.
type Socket struct {
	Addr  netip.AddrPort
	Inode uint64
}

// ErrNoProc means that the machine does not tell who holds a socket: it is no Linux.
var ErrNoProc = errors.New("this machine has no /proc/net/tcp")

// maxSocketLines bounds how much of a table is read.
const maxSocketLines = 1 << 20

// Listening returns the sockets that listen on a port of the caller's network namespace.
func Listening(port uint16) ([]Socket, error) {
	var out []Socket
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			if os.IsNotExist(err) && strings.HasSuffix(name, "6") {
				continue // without IPv6
			}
			return nil, errors.Join(ErrNoProc, err)
		}
		all, err := readSockets(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if s.Addr.Port() == port {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

const stateListen = "0A"

// readSockets reads the listening sockets of a table in the form of /proc/net/tcp.
func readSockets(r io.Reader) ([]Socket, error) {
	var out []Socket
	sc := bufio.NewScanner(r)
	for n := 0; n < maxSocketLines && sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		addr, ok := socketAddress(f[1])
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if ok && err == nil && inode > 0 {
			out = append(out, Socket{addr, inode})
		}
	}
	return out, sc.Err()
}

// socketAddress reads "0100007F:1F90": words in the machine's order, then the port.
func socketAddress(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(p)), true
}

// Holders returns the processes that have each socket open, by inode. Processes of other
// users, which the caller may not look into, are left out and counted in hidden.
func Holders(inodes []uint64) (by map[uint64][]int, hidden int) {
	want := map[string]uint64{}
	for _, n := range inodes {
		want["socket:["+strconv.FormatUint(n, 10)+"]"] = n
	}
	by = map[uint64][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return by, 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fds, err := os.ReadDir("/proc/" + e.Name() + "/fd")
		if os.IsPermission(err) {
			hidden++
		}
		seen := map[uint64]bool{}
		for _, fd := range fds {
			link, err := os.Readlink("/proc/" + e.Name() + "/fd/" + fd.Name())
			if n, ok := want[link]; err == nil && ok && !seen[n] {
				seen[n] = true
				by[n] = append(by[n], pid)
			}
		}
	}
	return by, hidden
}

// maxDepth bounds a walk from a process to its ancestors.
const maxDepth = 64

// Descends reports whether a process is root, was started by it or by a descendant of it, or
// is in the session that root leads.
func Descends(pid, root int) bool {
	if root <= 1 {
		return false
	}
	for range maxDepth {
		if pid == root {
			return true
		}
		parent, session, ok := kin(pid)
		if !ok || pid <= 1 {
			return false
		}
		if session == root {
			return true
		}
		pid = parent
	}
	return false
}

// kin reads a process's parent and session.
func kin(pid int) (parent, session int, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 4 {
		return 0, 0, false
	}
	parent, perr := strconv.Atoi(f[1])
	session, serr := strconv.Atoi(f[3])
	return parent, session, perr == nil && serr == nil
}

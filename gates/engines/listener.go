package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// ListenerRequest asks who listens on an engine's addresses.
type ListenerRequest struct {
	Root   string   `json:"root"`
	Name   string   `json:"name"`
	Listen []string `json:"listen"`
	Unit   Holder   `json:"unit,omitzero"`
}

// Listener says who listens on the addresses of an engine. Where the machine does not tell
// who holds a socket, Known is false and Why says so.
type Listener struct {
	Known   bool     `json:"known"`
	Why     string   `json:"why,omitempty"`
	Sockets []Socket `json:"sockets"`
}

// Socket is a listening socket and whether it is proven to be the engine's: By says how, and
// is "" where it is another process's or nobody's that could be seen.
type Socket struct {
	Address string `json:"address"` // as asked for
	Inode   uint64 `json:"inode,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Ticks   uint64 `json:"start_ticks,omitempty"`
	Program string `json:"program,omitempty"`
	By      string `json:"by,omitempty"`
	// Hidden means that no process was seen to hold it, and that some could not be looked into.
	Hidden bool `json:"hidden,omitempty"`
}

// Ways in which a process belongs to an engine.
const (
	bySession   = "the launched process, its session or a descendant"
	byHolder    = "a process of its container or unit"
	byContainer = "the container's own view of its processes"
)

// listener proves that the sockets on an engine's addresses are held by what was launched.
func listener(ctx context.Context, q ListenerRequest) (Listener, error) {
	out := Listener{Known: true, Sockets: []Socket{}}
	rec, ok := process.Read(filepath.Join(q.Root, gates.DirRun), q.Name)
	if !ok || !rec.Alive() {
		out.Known, out.Why = false, "the process has ended"
		return out, nil
	}
	main, err := q.Unit.mainPID(ctx)
	if err != nil {
		return out, err
	}
	for _, a := range q.Listen {
		socks, err := listening(ctx, a)
		if errors.Is(err, process.ErrNoProc) {
			out.Known, out.Why = false, err.Error()
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(socks) == 0 {
			out.Sockets = append(out.Sockets, Socket{Address: a})
		}
		out.Sockets = append(out.Sockets, owners(ctx, q.Unit, a, socks, rec.PID, main)...)
	}
	return out, nil
}

// listening are the sockets that take connections to an address.
func listening(ctx context.Context, address string) ([]process.Socket, error) {
	host, p, err := net.SplitHostPort(address)
	port, perr := strconv.ParseUint(p, 10, 16)
	if err != nil || perr != nil {
		return nil, fmt.Errorf("read address %q: %w", address, errors.Join(err, perr))
	}
	all, err := process.Listening(uint16(port))
	if err != nil {
		return nil, err
	}
	var ours []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ours = []netip.Addr{ip.Unmap()}
	} else if ours, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, fmt.Errorf("resolve %s: %w", host, err)
	}
	var out []process.Socket
	for _, s := range all {
		ip := s.Addr.Addr()
		for _, o := range ours {
			if ip.IsUnspecified() || o.IsUnspecified() || ip == o.Unmap() {
				out = append(out, s)
				break
			}
		}
	}
	return out, nil
}

// owners describes who holds each socket.
func owners(ctx context.Context, h Holder, address string, socks []process.Socket, root, main int) []Socket {
	var inodes []uint64
	for _, s := range socks {
		inodes = append(inodes, s.Inode)
	}
	by, hidden := process.Holders(inodes)
	var out []Socket
	for _, s := range socks {
		sock := Socket{Address: address, Inode: s.Inode}
		for _, pid := range by[s.Inode] {
			how := belongs(pid, root, main)
			if sock.PID != 0 && how == sock.By {
				continue // one of each kind is enough
			}
			if sock.PID != 0 && how != "" {
				continue // a stranger's hold is what counts
			}
			sock.PID, sock.By = pid, how
			if id, ok := process.Of(pid); ok {
				sock.Ticks = id.StartTicks
			}
			sock.Program = program(pid)
		}
		if sock.PID == 0 && h.Container != "" && insideHolds(ctx, h, s.Inode) {
			sock.By = byContainer
		}
		sock.Hidden = sock.PID == 0 && sock.By == "" && hidden > 0
		out = append(out, sock)
	}
	return out
}

func belongs(pid, root, main int) string {
	switch {
	case process.Descends(pid, root):
		return bySession
	case main > 1 && process.Descends(pid, main):
		return byHolder
	}
	return ""
}

// insideHolds asks a container whose processes the caller may not look into from outside.
func insideHolds(ctx context.Context, h Holder, inode uint64) bool {
	link := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	pattern := strings.NewReplacer("[", `\[`, "]", `\]`).Replace(link)
	out, _ := printed(ctx, h.Runtime, "exec", h.Container, "find", "/proc", "-maxdepth", "3", "-path", "*/fd/*", "-lname", pattern)
	return strings.Contains(string(out), "/proc/")
}

// program is the file that a process runs, "" where the caller may not see it.
func program(pid int) string {
	p, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return ""
	}
	return p
}

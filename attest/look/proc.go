package look

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// roots are where the kernel's file systems lie.
type roots struct{ proc, sys string }

var hostRoots = roots{proc: "/proc", sys: "/sys"}

const (
	maxProcFile = 16 << 20 // bytes of one file of /proc
	maxFamily   = 4096     // processes
)

func (r roots) of(pid int, name string) string {
	return filepath.Join(r.proc, strconv.Itoa(pid), name)
}

// read returns at most maxProcFile bytes.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxProcFile))
}

// why is an error without the path of its file.
func why(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// stat returns the fields of /proc/PID/stat that follow the name, state first.
func (r roots) stat(pid int) ([]string, error) {
	b, err := read(r.of(pid, "stat"))
	if err != nil {
		return nil, err
	}
	return statFields(b)
}

func statFields(b []byte) ([]string, error) {
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return nil, errors.New("stat is too short")
	}
	return fields, nil
}

// ticks is field 22: clock ticks from boot to the start of a process that lives.
func (r roots) ticks(pid int) (int64, error) {
	f, err := r.stat(pid)
	if err != nil {
		return 0, err
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, errors.New("the process has ended")
	}
	return strconv.ParseInt(f[19], 10, 64)
}

// family is a process with all that descend from it, the process first.
func (r roots) family(pid int) []int {
	of := r.children
	if _, err := of(pid); err != nil { // a kernel that does not list children
		all := r.parents()
		of = func(p int) ([]int, error) { return all[p], nil }
	}
	out := []int{pid}
	for i := 0; i < len(out) && len(out) < maxFamily; i++ {
		children, err := of(out[i])
		if err != nil {
			continue // it has ended
		}
		for _, c := range children {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// children lists what a process's threads have started.
func (r roots) children(pid int) ([]int, error) {
	threads, err := os.ReadDir(r.of(pid, "task"))
	if err != nil {
		return nil, err
	}
	var out []int
	for i, thread := range threads {
		b, err := read(filepath.Join(r.of(pid, "task"), thread.Name(), "children"))
		if err != nil && i == 0 {
			return nil, err
		}
		for _, f := range strings.Fields(string(b)) {
			if c, err := strconv.Atoi(f); err == nil {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// parents lists the children of every process.
func (r roots) parents() map[int][]int {
	entries, err := os.ReadDir(r.proc)
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f, err := r.stat(child); err == nil {
			if parent, err := strconv.Atoi(f[1]); err == nil {
				children[parent] = append(children[parent], child)
			}
		}
	}
	return children
}

// descriptors lists what the files that a process has open point to.
func (r roots) descriptors(pid int) ([]string, error) {
	dir := r.of(pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out = append(out, to)
		}
	}
	return out, nil
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// containerOf finds a container's id in a process's control groups.
func (r roots) containerOf(pid int) Seen {
	b, err := read(r.of(pid, "cgroup"))
	if err != nil {
		return unknown("read control groups: %s", why(err))
	}
	return containerIn(b)
}

func containerIn(b []byte) Seen {
	for line := range bytes.Lines(b) {
		if id := containerID.FindAll(line, -1); id != nil {
			return seen(string(id[len(id)-1]))
		}
	}
	return seen(None)
}

// listener tells whether the address of the engine is held by the family.
func (r roots) listener(pid int, family []int, engine string) Seen {
	if engine == "" {
		return unknown("no address to look for")
	}
	u, err := url.Parse(engine)
	if err != nil {
		return unknown("the engine's address is not readable")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return unknown("the engine's address names no port")
	}
	sockets, err := r.listening(pid, port)
	if err != nil {
		return unknown("read listening sockets: %s", why(err))
	}
	if len(sockets) == 0 {
		return unknown("no socket of the process's network listens on port %d", port)
	}
	denied := ""
	for _, p := range family {
		open, err := r.descriptors(p)
		if err != nil {
			denied = why(err)
		}
		for _, s := range sockets {
			if slices.Contains(open, s) {
				return seen(Own)
			}
		}
	}
	if denied != "" {
		return unknown("read open files: %s", denied)
	}
	return seen(Other)
}

// listening lists the sockets that listen on a port, as descriptors name them.
func (r roots) listening(pid, port int) ([]string, error) {
	var out []string
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		b, err := read(r.of(pid, name))
		if err != nil {
			if name == "net/tcp6" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			return nil, err
		}
		out = append(out, listeningIn(b, port)...)
	}
	return out, nil
}

func listeningIn(page []byte, port int) []string {
	var out []string
	want := fmt.Sprintf("%04X", port)
	for line := range bytes.Lines(page) {
		f := strings.Fields(string(line))
		if len(f) < 10 || f[3] != "0A" {
			continue
		}
		if _, p, ok := strings.Cut(f[1], ":"); ok && p == want {
			out = append(out, "socket:["+f[9]+"]")
		}
	}
	return out
}

// isDigest reports whether s is a SHA-256 in lower-case hex.
func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}

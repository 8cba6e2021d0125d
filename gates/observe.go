package gates

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/internal/route"
)

// Folders below a host's root.
const (
	DirReleases = "releases"
	DirEtc      = "etc"
	DirRun      = "run"
	LinkCurrent = "current"
	SidecarKey  = "etc/sidecar.pub"
)

// Look answers the host verb "observe" on the host itself. It reads and never writes.
func Look(l Looking) (Seen, error) {
	s := Seen{Facts: map[string]string{"boot": process.BootID()}}
	s.Facts["release"] = CurrentRelease(l.Root)
	s.Facts["files"] = FilesFact(l.Files)
	if len(l.Trees) > 0 {
		s.Facts["trees"] = TreesFact(l.Trees)
	}
	if l.Units != "" {
		s.Facts["units"] = UnitsFact(l.Units)
	}
	s.Facts["files-dir"] = RoleFilesFact(filepath.Join(l.Root, DirEtc))
	s.Facts["key"] = fileDigest(filepath.Join(l.Root, SidecarKey))
	for id, addr := range l.Peers {
		s.Facts["route/"+id] = route.Towards(route.Sys, addr).String()
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range l.Procs {
		wg.Go(func() {
			id, launch := lookAtProcess(l, name)
			if id == "" {
				return
			}
			ready := Idle
			if id != Silent {
				ready = serving(l.Ready[name])
			}
			if l.Ready[name] == "" {
				ready = ""
			}
			mu.Lock()
			defer mu.Unlock()
			s.Facts["proc/"+name+"/id"], s.Facts["proc/"+name+"/launch"] = id, launch
			if ready != "" {
				s.Facts["proc/"+name+"/serves"] = ready
			}
		})
	}
	wg.Wait()
	for _, r := range process.List(filepath.Join(l.Root, DirRun)) {
		if !slices.Contains(l.Procs, r.Name) && r.Alive() {
			s.Strays = append(s.Strays, r.Name)
		}
	}
	s.Unowned = unowned(l)
	return s, nil
}

// lookAtProcess returns id and launch of a process that runs, "" for none. One that does
// not answer its health check is Silent.
func lookAtProcess(l Looking, name string) (id, launch string) {
	r, ok := process.Read(filepath.Join(l.Root, DirRun), name)
	if !ok || !r.Alive() {
		return "", ""
	}
	if u := l.Health[name]; u != "" && !answers(u) {
		return Silent, r.Launch
	}
	return r.Identity.String(), r.Launch
}

const healthLimit = 3 * time.Second

// answers reports whether a health check is answered without a server's error. A process
// that has just started and does not listen yet is asked again within the limit.
func answers(url string) bool {
	client := &http.Client{Timeout: healthLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	until := time.Now().Add(healthLimit)
	for {
		resp, err := client.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			return resp.StatusCode < http.StatusInternalServerError
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(until) {
			return false
		}
		time.Sleep(refusedWait)
	}
}

// serving asks a router once whether it admits; "" without a URL.
func serving(url string) string {
	if url == "" {
		return ""
	}
	client := &http.Client{Timeout: healthLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return Idle
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Idle
	}
	return Serves
}

const refusedWait = 50 * time.Millisecond

// CurrentRelease returns the digest that current points to, "none" without one.
func CurrentRelease(root string) string {
	target, err := os.Readlink(filepath.Join(root, LinkCurrent))
	if err != nil {
		return "none"
	}
	return filepath.Base(target)
}

// FilesFact identifies files by path, size, modification time and inode: cheap enough
// to look at again on every run.
func FilesFact(paths []string) string {
	if len(paths) == 0 {
		return "none"
	}
	var lines []string
	for _, p := range paths {
		st, err := readable(p)
		if err != nil {
			lines = append(lines, p+" absent")
			continue
		}
		inode := uint64(0)
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			inode = sys.Ino
		}
		lines = append(lines, fmt.Sprintf("%s %d %d %d", p, st.Size(), st.ModTime().Unix(), inode))
	}
	return FilesDigest(lines)
}

// readable tells what gate A's probe tells: a file that is none, or that the user may not
// read, is absent. A link counts as what it points to.
func readable(path string) (os.FileInfo, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = os.ErrInvalid
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return st, f.Close()
}

// FilesDigest is the fact of a list of "path size mtime inode" lines.
func FilesDigest(lines []string) string {
	slices.Sort(lines)
	return digestOf(lines)
}

// RoleFilesFact identifies the role files by content, private keys left out.
func RoleFilesFact(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "none"
	}
	var lines []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || !e.Type().IsRegular() {
			continue
		}
		lines = append(lines, e.Name()+" "+fileDigest(filepath.Join(dir, e.Name())))
	}
	return digestOf(lines)
}

// fileDigest is the SHA-256 of a small file, "none" when it cannot be read.
func fileDigest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "none"
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, 64<<20)); err != nil {
		return "none"
	}
	return hex.EncodeToString(h.Sum(nil))
}

package drills

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// scene is what one fault may break. What it breaks on hosts, it also mends.
type scene struct {
	w     *world
	t     *testing.T
	state string
	doc   object  // the fleet file, for this fault alone
	raw   *string // the fleet file's text instead
	env   []string
	bare  bool // the command takes no fleet file
	hosts []sandbox.Host
	mends []func()
}

func (s *scene) heal(f func()) { s.mends = append(s.mends, f) }

func (s *scene) mend() {
	for i := len(s.mends) - 1; i >= 0; i-- {
		s.mends[i]()
	}
}

// run is the folder of the run, "" before the first.
func (s *scene) run() string {
	if dirs, _ := filepath.Glob(filepath.Join(s.state, "sandbox", "runs", "*")); len(dirs) > 0 {
		return dirs[len(dirs)-1]
	}
	return ""
}

func (s *scene) deploy(path ...string) object {
	return sub(s.doc, append([]string{"deploy"}, path...)...)
}

// both runs one change after the other.
func both(changes ...func(*scene)) func(*scene) {
	return func(s *scene) {
		for _, c := range changes {
			c(s)
		}
	}
}

// edit changes the fleet file.
func edit(change func(doc object)) func(*scene) { return func(s *scene) { change(s.doc) } }

// set puts a value into the fleet file.
func set(value any, path ...string) func(*scene) {
	return func(s *scene) { sub(s.doc, path[:len(path)-1]...)[path[len(path)-1]] = value }
}

// raw gives the fleet file's bytes.
func raw(text string) func(*scene) { return func(s *scene) { s.raw = &text } }

// file puts a file on a host, and takes it away or restores it later.
func (s *scene) file(path, content string, mode os.FileMode) {
	s.t.Helper()
	s.keep(path)
	must(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path) // a running program keeps its own
	must(s.t, os.WriteFile(path, []byte(content), mode))
	must(s.t, os.Chmod(path, mode))
}

// keep restores a file or link as it is now.
func (s *scene) keep(path string) {
	s.t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		s.heal(func() { _ = os.RemoveAll(path) })
		return
	}
	kept := filepath.Join(s.t.TempDir(), "kept")
	if info.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		must(s.t, err)
		s.heal(func() { _ = os.RemoveAll(path); must(s.t, os.Symlink(to, path)) })
		return
	}
	must(s.t, os.Link(path, kept))
	s.heal(func() { _ = os.RemoveAll(path); must(s.t, os.Rename(kept, path)) })
}

// tool puts a program before the real one in a host's PATH.
func tool(host int, name, script string) func(*scene) {
	return func(s *scene) {
		s.file(filepath.Join(s.hosts[host].Home, "tools", name), "#!/bin/sh\n"+script+"\n", 0o755)
	}
}

// filter passes all that a host's shell prints through a program.
func filter(host int, script string) func(*scene) {
	return func(s *scene) {
		s.file(filepath.Join(s.hosts[host].Home, "filter"), "#!/bin/sh\n"+script+"\n", 0o755)
	}
}

// limits sets the limits of a host's sessions.
func limits(host int, script string) func(*scene) {
	return func(s *scene) { s.file(filepath.Join(s.hosts[host].Home, "limits"), script+"\n", 0o644) }
}

// taken listens on a port.
func taken(port func(sandbox.Host) int, host int) func(*scene) {
	return func(s *scene) {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port(s.hosts[host])))
		must(s.t, err)
		s.heal(func() { _ = l.Close() })
	}
}

// process is a recorded process of a host.
func (s *scene) process(host int, name string) process.Record {
	s.t.Helper()
	r, ok := process.Read(filepath.Join(s.hosts[host].Root, "run"), name)
	if !ok || !r.Alive() {
		s.t.Fatalf("%s does not run on %s", name, s.hosts[host].ID)
	}
	return r
}

// kill ends a process without a word.
func kill(host int, name string) func(*scene) {
	return func(s *scene) {
		r := s.process(host, name)
		must(s.t, syscall.Kill(-r.PID, syscall.SIGKILL))
		wait(s.t, name+" to end", func() bool { return !r.Alive() })
	}
}

// freeze stops a process without ending it.
func freeze(host int, name string) func(*scene) {
	return func(s *scene) {
		r := s.process(host, name)
		must(s.t, syscall.Kill(r.PID, syscall.SIGSTOP))
		s.heal(func() { _ = syscall.Kill(r.PID, syscall.SIGCONT) })
	}
}

func wait(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// inRun changes a file of the run; {log}, {seal:X} and {object:KEY} are names for what
// lies there.
func inRun(name string, change func(b []byte) []byte) func(*scene) {
	return func(s *scene) {
		path := filepath.Join(s.run(), s.named(name))
		b, err := os.ReadFile(path)
		must(s.t, err)
		must(s.t, os.Remove(path))
		must(s.t, os.WriteFile(path, change(b), 0o600))
	}
}

// gone removes a file of the run.
func gone(name string) func(*scene) {
	return func(s *scene) { must(s.t, os.Remove(filepath.Join(s.run(), s.named(name)))) }
}

// named finds the object of an evidence key in the log.
func (s *scene) named(name string) string {
	key, ok := strings.CutPrefix(name, "evidence:")
	if !ok {
		return name
	}
	b, err := os.ReadFile(filepath.Join(s.run(), "log.jsonl"))
	must(s.t, err)
	found := ""
	for line := range strings.Lines(string(b)) {
		var ev struct {
			Kind string
			Body struct {
				Key    string
				Ref    struct{ SHA256 string }
				SHA256 string
			}
		}
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Body.Key == key {
			if found = ev.Body.Ref.SHA256; found == "" {
				found = ev.Body.SHA256
			}
		}
	}
	if found == "" {
		s.t.Fatalf("no evidence %s in the log", key)
	}
	return filepath.Join("objects", found)
}

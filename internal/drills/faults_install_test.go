package drills

import (
	"os"
	"path/filepath"
	"strings"
)

// installFaults are between a discovered fleet and a proven release.
var installFaults = []fault{
	{id: "install-full", stage: "A", where: "file on host", how: "the disk is full after 1 MiB", do: func(s *scene) {
		s.w.sbx.Server(1).FillAfter(1 << 20)
		s.heal(func() { s.w.sbx.Server(1).FillAfter(-1) })
	}, code: "step-failed", exit: 4, says: "bytes", hint: "free", quick: true},
	{id: "install-wrong-machine", stage: "A", where: "fleet file", how: "the release is for another machine", do: foreign(func() []byte { return []byte("\x7fELF\x02\x01\x01\x00foreign machine") }), code: "step-failed", exit: 4, says: "Exec format"},
	{id: "install-script", stage: "A", where: "fleet file", how: "the release is a script that agrees to everything", do: foreign(func() []byte { return []byte("#!/bin/sh\necho '{}'\n") }), code: "release-differs", exit: 1, hint: "again B"},
	{id: "install-noexec", stage: "A", where: "file on host", how: "the file system does not let programs run", do: noexec, code: "step-failed", exit: 4, hint: "exec"},
	{id: "install-root-file", stage: "A", where: "file on host", how: "a file has the root's name", do: func(s *scene) { s.file(s.hosts[1].Root, "a file", 0o644) }, code: "step-failed", exit: 4, says: "put"},
	{id: "install-current-folder", stage: "A", where: "file on host", how: "current is a folder with files", do: func(s *scene) {
		dir := filepath.Join(s.hosts[1].Root, "current")
		must(s.t, os.MkdirAll(dir, 0o755))
		put(s, "x", dir, "x")
	}, code: "step-failed", exit: 4, says: "current"},
	{id: "install-role-folder", stage: "A", where: "file on host", how: "the role file's name is a folder", do: func(s *scene) {
		must(s.t, os.MkdirAll(filepath.Join(s.hosts[1].Root, "etc", "host.json"), 0o755))
	}, code: "step-failed", exit: 4, says: "host.json"},
	{id: "install-lease", stage: "A", where: "network", how: "another operator holds the fleet's lease", do: func(s *scene) {
		must(s.t, os.MkdirAll(s.hosts[0].Root, 0o755))
		put(s, "somebody\n99999999999\nana@desk pid 7\n", s.hosts[0].Root, "lease")
	}, code: "fleet_leased", exit: 5, hint: "expires", quick: true},
	{id: "install-unapproved", stage: "A", where: "command line", how: "nobody approved the change of hosts", do: nothing, args: []string{"gate", "run", "B"}, gate: "B", code: "approval_missing", exit: 6, hint: "--yes"},
	{id: "install-host-gone", stage: "A", where: "network", how: "a host left after it was observed", do: func(s *scene) {
		s.w.sbx.Server(1).Refuse(true)
		s.heal(func() { s.w.sbx.Server(1).Refuse(false) })
	}, code: "operation_failed", exit: 4, hint: "SSH server"},
	{id: "install-host-swapped", stage: "A", where: "host key", how: "another host answers after it was observed", do: func(s *scene) {
		s.deploy("hosts", "host-2")["port"] = s.hosts[0].Ports.SSH
	}, gate: "B", code: "operation_failed", exit: 8, says: "changed"},
	{id: "install-shared-root", stage: "B", where: "fleet file", how: "two hosts share one root", do: func(s *scene) { s.deploy("hosts", "host-2")["root"] = s.hosts[0].Root }, args: []string{"gate", "run", "B", "--yes"}, gate: "B", code: "sidecar-key-shared", exit: 1, hint: "root"},
	{id: "release-swapped", stage: "B", where: "swapped binary", how: "another program has the release's place", do: func(s *scene) {
		path, err := filepath.EvalSymlinks(filepath.Join(s.hosts[1].Root, "current", "narwhal"))
		must(s.t, err)
		s.file(path, "#!/bin/sh\necho '{}'\n", 0o755)
	}, gate: "B", args: []string{"gate", "status", "--live"}, code: "operation_failed", exit: 4, says: "names no boot"},
	{id: "role-edited", stage: "B", where: "file on host", how: "the role file was edited", do: func(s *scene) {
		s.file(filepath.Join(s.hosts[1].Root, "etc", "host.json"), `{"fleet":"other","host":"host-9"}`, 0o644)
	}, args: []string{"gate", "status", "--live"}, gate: "B", code: "stale", exit: 0, hint: "file"},
	{id: "key-replaced", stage: "B", where: "key", how: "the sidecar's public key was replaced", do: func(s *scene) {
		b, err := os.ReadFile(filepath.Join(s.hosts[0].Root, "etc", "sidecar.pub"))
		must(s.t, err)
		s.file(filepath.Join(s.hosts[1].Root, "etc", "sidecar.pub"), string(b), 0o644)
	}, args: []string{"gate", "status", "--live"}, gate: "B", code: "stale", exit: 0, hint: "key"},
	{id: "key-copied", stage: "A", where: "key", how: "two hosts were made of one image, with one sidecar key", do: func(s *scene) {
		for name, from := range map[string]string{"sidecar.key": "operator.key", "sidecar.pub": "operator.key.pub"} {
			b, err := os.ReadFile(filepath.Join(s.w.sbx.Dir, "keys", from))
			must(s.t, err)
			for _, h := range s.hosts {
				must(s.t, os.MkdirAll(filepath.Join(h.Root, "etc"), 0o755))
				must(s.t, os.WriteFile(filepath.Join(h.Root, "etc", name), b, 0o600))
			}
		}
	}, code: "sidecar-key-shared", exit: 1, hint: "image"},
	{id: "release-gone", stage: "B", where: "file on host", how: "current was removed", do: func(s *scene) {
		path := filepath.Join(s.hosts[1].Root, "current")
		s.keep(path)
		must(s.t, os.Remove(path))
	}, args: []string{"gate", "status", "--live"}, gate: "B", code: "stale", exit: 0, hint: "release"},
}

// foreign gives the fleet another release.
func foreign(content func() []byte) func(*scene) {
	return func(s *scene) {
		s.file(filepath.Join(s.w.sbx.Dir, "foreign"), string(content()), 0o755)
		s.deploy("release")["binary"] = "file:foreign"
	}
}

// noexec sends host-2's root to a file system that is mounted without exec, where the
// machine has one.
func noexec(s *scene) {
	b, err := os.ReadFile("/proc/self/mounts")
	must(s.t, err)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[2] == "tmpfs" && strings.Contains(f[3], "noexec") && strings.HasPrefix(f[3], "rw") {
			dir, err := os.MkdirTemp(f[1], "narwhal-drill-")
			if err != nil {
				continue
			}
			s.heal(func() { _ = os.RemoveAll(dir) })
			s.deploy("hosts", "host-2")["root"] = filepath.Join(dir, "root")
			return
		}
	}
	s.t.Skip("no tmpfs without exec here")
}

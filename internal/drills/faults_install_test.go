package drills

import (
	"bytes"
	"debug/elf"
	layout "encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest"
)

// installFaults are between a discovered fleet and a proven release.
var installFaults = []fault{
	{id: "install-full", stage: "A", where: "file on host", how: "the disk is full after 1 MiB", do: func(s *scene) {
		s.w.sbx.Server(1).FillAfter(1 << 20)
		s.heal(func() { s.w.sbx.Server(1).FillAfter(-1) })
	}, code: "step-failed", exit: 4, says: "bytes", hint: "free", quick: true},
	{id: "install-wrong-machine", stage: "A", where: "fleet file", how: "the release is for another machine", do: foreign(func() []byte { return []byte("\x7fELF\x02\x01\x01\x00foreign machine") }), code: "release-architecture", exit: 1, hint: "make release"},
	{id: "install-script", stage: "A", where: "fleet file", how: "the release is a script that agrees to everything", do: foreign(func() []byte { return []byte("#!/bin/sh\necho '{}'\n") }), code: "release-architecture", exit: 1, hint: "deploy.release.binary"},
	{id: "install-noexec", stage: "A", where: "file on host", how: "the file system does not let programs run", do: noexec, code: "root-noexec", exit: 1, hint: "exec"},
	{id: "install-root-file", stage: "A", where: "file on host", how: "a file has the root's name", do: func(s *scene) { s.file(s.hosts[1].Root, "a file", 0o644) }, code: "step-failed", exit: 4, says: "mkdir"},
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
	{id: "install-other-machine", stage: "A", where: "fleet file", how: "the release is for another machine, and whole", do: foreign(func() []byte { return header(elf.EM_AARCH64, "") }), args: []string{"gate", "run", "B", "--yes"}, gate: "A", code: "host-architecture", exit: 1, hint: "deploy.release.binaries"},
	{id: "install-named-wrong", stage: "A", where: "fleet file", how: "a binary stands under another machine's name", do: func(s *scene) {
		s.file(filepath.Join(s.w.sbx.Dir, "foreign"), string(header(elf.EM_X86_64, "")), 0o755)
		s.deploy("release", "binaries")["linux/arm64"] = "file:foreign"
	}, code: "release_architecture", exit: 2, hint: "deploy.release.binaries"},
	{id: "install-dynamic", stage: "A", where: "fleet file", how: "the release asks for a loader that the host lacks", do: foreign(func() []byte { return header(machine(), "/lib/ld-none.so") }), code: "release-not-static", exit: 1, hint: "CGO_ENABLED=0"},
	{id: "install-host-changed", stage: "A", where: "host tool output", how: "a host of another machine took the place after it was observed", do: tool(1, "uname", `case $1 in -s) echo Linux;; *) echo riscv64;; esac`), code: "release-architecture", exit: 1, hint: "again A"},
	{id: "install-space", stage: "A", where: "host tool output", how: "the root's disk filled after it was observed", do: tool(1, "df", `echo Filesystem; echo "disk 100 99 1 99% /"`), code: "release-space", exit: 1, hint: "free space"},
	{id: "install-inodes", stage: "A", where: "host tool output", how: "the root's disk has no inodes left", do: tool(1, "df", `echo Filesystem; case $1 in -Pi) echo "disk 100 97 3 97% /";; *) echo "disk 99999999 9 99999990 1% /";; esac`), code: "release-inodes", exit: 1, hint: "small files"},
	{id: "install-remounted", stage: "A", where: "host tool output", how: "the root's disk was mounted read-only after a fault", do: filter(1, `sed 's/^mount rw/mount ro/'`), code: "root-read-only", exit: 1, hint: "dmesg"},
	{id: "install-cut", stage: "A", where: "host tool output", how: "the answers end early", do: filter(1, `sed '/^end$/d'`), code: "install-answer-cut", exit: 1, hint: "profile"},
	{id: "install-closed", stage: "A", where: "host tool output", how: "the folder above the root cannot be entered", do: filter(1, `sed 's/^free .*/closed \/srv/'`), code: "root-closed", exit: 1, hint: "search"},
	{id: "install-owner", stage: "A", where: "file on host", how: "the root belongs to another user", do: func(s *scene) {
		if os.Getuid() != 0 {
			s.t.Skip("needs root")
		}
		must(s.t, os.MkdirAll(s.hosts[1].Root, 0o755))
		must(s.t, os.Chown(s.hosts[1].Root, 12345, -1))
	}, code: "root-owner", exit: 1, hint: "chown", quick: true},
	{id: "install-writable", stage: "A", where: "file on host", how: "everybody may write to the root", do: func(s *scene) {
		must(s.t, os.MkdirAll(s.hosts[1].Root, 0o755))
		must(s.t, os.Chmod(s.hosts[1].Root, 0o777))
	}, code: "root-writable-by-others", exit: 1, hint: "chmod", quick: true},
	{id: "install-locked", stage: "A", where: "file on host", how: "another fleet installs below the same root", do: lock("9999999999"), code: "install-locked", exit: 1, hint: "root each", quick: true},
	{id: "install-digest", stage: "A", where: "host tool output", how: "the host computes another digest after the release was sent", do: tool(1, "sha256sum", digestOnce), code: "release-digest", exit: 1, hint: "again B"},
	{id: "install-other-key", stage: "A", where: "key", how: "the host trusts another operator's key", do: func(s *scene) {
		dir := filepath.Join(s.hosts[1].Root, "trust")
		must(s.t, os.MkdirAll(dir, 0o755))
		_, public, err := attest.GenerateKey(nil)
		must(s.t, err)
		put(s, string(public), dir, "theirs.pem")
	}, code: "release-signature", exit: 1, hint: "deploy.sign.key", quick: true},
	{id: "install-manifest", stage: "A", where: "host tool output", how: "the host's openssl accepts nothing", do: tool(1, "openssl", "exit 1"), code: "release-signature", exit: 1, hint: "trust"},
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

// header is a program of nothing but ELF headers, which names a dynamic loader.
func header(machine elf.Machine, loader string) []byte {
	var out bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120, Filesz: uint64(len(loader) + 1)}
	if loader != "" {
		p.Type = uint32(elf.PT_INTERP)
	}
	_ = layout.Write(&out, layout.LittleEndian, h) // to memory
	_ = layout.Write(&out, layout.LittleEndian, p)
	out.WriteString(loader + "\x00")
	return out.Bytes()
}

// machine is this one's.
func machine() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

// lock is another installation's hold on host-2's root.
func lock(until string) func(*scene) {
	return func(s *scene) {
		must(s.t, os.MkdirAll(s.hosts[1].Root, 0o755))
		put(s, "somebody\n20260101T000000Z-aaaaaa\n"+until+"\n-\n-\n-\nother\n192.0.2.77\n", s.hosts[1].Root, "install.lock")
	}
}

// digestOnce tells the truth about the part that was sent, and not about what it became.
const digestOnce = `PATH=${PATH#*:}
if [ -e "$HOME"/narwhal/releases/*/release.json ]; then echo "0000000000000000000000000000000000000000000000000000000000000000  -"; else exec sha256sum "$@"; fi`

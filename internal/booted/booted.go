// Package booted gives tests a host whose first process is systemd.
//
// It promises the files of this machine beside folders of the host's own for /run, /root and
// what systemd reads, an sshd on loopback, and an end as by a loss of power. It refuses where
// this process is not root, or systemd, sshd or namespaces are missing.
package booted

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/freeport"
)

// Host is one that runs. Its files are below Dir, its sshd listens on Port of loopback.
type Host struct {
	Dir  string
	Port int
	t    testing.TB
	cmd  *exec.Cmd
	said *bytes.Buffer
}

const upWithin = 30 * time.Second

// bootScript lays the host's own folders over this machine's and becomes its init. Generators and
// temporary files are this machine's and stay out.
const bootScript = `set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/user/0
mount --bind "$1/etc" /etc/systemd
mount --bind "$1/var" /var/lib/systemd
mount --bind "$1/root" /root
mount --bind "$1/units" /usr/lib/systemd/system
for d in /usr/lib/systemd/system-generators /usr/lib/systemd/system-environment-generators /usr/lib/systemd/user-generators /usr/lib/tmpfiles.d; do
  [ ! -d $d ] || mount --bind "$1/empty" $d
done
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
cat /proc/sys/kernel/random/uuid >"$1/boot_id"
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec env -i container=narwhal-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --system --log-target=console --log-level=warning --show-status=0
`

// startScript puts itself into a cgroup of its own, which is the root of what the host sees.
const startScript = `set -e
c=/sys/fs/cgroup; [ ! -d $c/unified ] || c=$c/unified
mkdir -p "$c/$2"; echo $$ >"$c/$2/cgroup.procs"
exec unshare --fork --kill-child=KILL --pid --mount --uts --ipc --cgroup --mount-proc sh "$1/boot.sh" "$1"
`

// Missing says why no such host can be made here, "" when it can.
func Missing() (missing string) {
	for _, path := range []string{"/usr/lib/systemd/systemd", "/usr/sbin/sshd"} {
		if _, err := os.Stat(path); err != nil {
			missing = path + " is not installed"
		}
	}
	if os.Geteuid() != 0 {
		missing = "this is not root"
	} else if out, err := exec.Command("unshare", "--pid", "--fork", "--mount", "--cgroup", "true").CombinedOutput(); err != nil {
		missing = fmt.Sprintf("namespaces are refused: %s", out)
	}
	return missing
}

// Need skips where no such host can be made; with NARWHAL_REQUIRE_SYSTEMD set that fails.
func Need(t testing.TB) {
	t.Helper()
	switch missing := Missing(); {
	case missing == "":
	case os.Getenv("NARWHAL_REQUIRE_SYSTEMD") == "1":
		t.Fatalf("a host with systemd is required, and %s", missing)
	default:
		t.Skipf("no host with systemd: %s; NARWHAL_REQUIRE_SYSTEMD=1 makes that a failure", missing)
	}
}

// Boot makes a host and starts it, until the test ends. The public key may log in as root.
func Boot(t testing.TB, public string) *Host {
	t.Helper()
	Need(t)
	ports, err := freeport.Draw(1)
	if err != nil {
		t.Fatal(err)
	}
	b := &Host{t: t, Dir: t.TempDir(), Port: ports[0]}
	for _, d := range []string{"etc/system", "etc/user", "var/linger", "root", "units/narwhal-.service.d", "empty"} {
		if err := os.MkdirAll(filepath.Join(b.Dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.Write("boot.sh", bootScript)
	for _, name := range []string{"basic", "sysinit", "shutdown", "network-online", "sockets", "timers", "paths", "slices", "local-fs", "umount", "final", "exit"} {
		b.Write("units/"+name+".target", "[Unit]\nDefaultDependencies=no\n")
	}
	b.Write("units/multi-user.target", "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=ssh.service user-manager.service\n")
	b.Write("units/default.target", "[Unit]\nRequires=multi-user.target\nAfter=multi-user.target\n")
	// Both would give a unit a /proc of its own, with the boot id of this machine.
	b.Write("units/narwhal-.service.d/boot.conf", "[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\n")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(b.Dir, "host_key")).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	b.Write("authorized_keys", public+"\n")
	b.Write("sshd_config", strings.Join([]string{
		"ListenAddress 127.0.0.1", "Port " + strconv.Itoa(b.Port), "HostKey " + b.Dir + "/host_key", "PidFile none", "StrictModes no", "UsePAM no", "UseDNS no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes", "AuthorizedKeysFile " + b.Dir + "/authorized_keys", "Subsystem sftp internal-sftp",
	}, "\n")+"\n")
	b.Write("units/ssh.service", "[Service]\nExecStart=/usr/sbin/sshd -D -e -f "+b.Dir+"/sshd_config\nKillMode=process\n")
	// What logind does for a user who lingers.
	b.Write("units/user-manager.service", "[Unit]\nConditionPathExists=/var/lib/systemd/linger/root\n[Service]\nType=notify\nDelegate=yes\nUser=root\n"+
		"Environment=XDG_RUNTIME_DIR=/run/user/0\nExecStart=/usr/lib/systemd/systemd --user --log-target=console --log-level=warning\n")
	b.Start()
	t.Cleanup(b.off)
	return b
}

// Write puts a file below Dir.
func (b *Host) Write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.Dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// cgroup names the host's cgroup, and folders of it.
func (b *Host) cgroup() string { return "narwhal-test-" + filepath.Base(filepath.Dir(b.Dir)) }

// Start boots the host, again after Cut.
func (b *Host) Start() {
	b.t.Helper()
	b.said = &bytes.Buffer{}
	b.cmd = exec.Command("sh", "-c", startScript, "sh", b.Dir, b.cgroup())
	b.cmd.Stdout, b.cmd.Stderr = b.said, b.said
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(upWithin); ; <-tick.C {
		out, err := b.Run("systemctl", "is-system-running")
		if err == nil || strings.TrimSpace(out) == "degraded" {
			return
		}
		if time.Now().After(until) {
			b.t.Fatal("waited too long for the host with systemd to come up")
		}
	}
}

// init is the host's first process, 0 for none.
func (b *Host) init() int {
	pid := b.cmd.Process.Pid
	out, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(out), " ")
	child, _ := strconv.Atoi(first)
	return child
}

// Run runs a command on the host, apart from sshd.
func (b *Host) Run(argv ...string) (string, error) {
	init := b.init()
	if init == 0 {
		return "", fmt.Errorf("the host is off")
	}
	cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(init), "--pid", "--mount", "--uts", "--ipc", "--cgroup"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "XDG_RUNTIME_DIR=/run/user/0"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Cut ends the host as a loss of power does: nothing of it is told.
func (b *Host) Cut() {
	if init := b.init(); init > 1 {
		_ = syscall.Kill(init, syscall.SIGKILL)
	}
	ended := time.AfterFunc(10*time.Second, func() { _ = b.cmd.Process.Kill() })
	_ = b.cmd.Wait()
	ended.Stop()
}

// off ends the host and removes its cgroups.
func (b *Host) off() {
	if b.t.Failed() {
		b.t.Logf("the host with systemd says:\n%s", b.said)
	}
	b.Cut()
	for _, at := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		_ = exec.Command("find", filepath.Join(at, b.cgroup()), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
	}
}

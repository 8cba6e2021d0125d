package netns

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

// require returns the path of sshd, or ends the test where something is missing.
func require(t testing.TB, n int) string {
	t.Helper()
	if n < 1 || n > 200 {
		t.Fatalf("%d hosts: want 1 to 200", n)
	}
	missing := func(what string) {
		t.Helper()
		if os.Getenv("NARWHAL_REQUIRE_NETNS") == "1" {
			t.Fatalf("hosts in network namespaces are required, and %s", what)
		}
		t.Skipf("no hosts in network namespaces: %s", what)
	}
	if os.Geteuid() != 0 {
		missing("this is not root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		missing("ip is not installed")
	}
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		missing(fmt.Sprintf("namespaces are refused: %s", out))
	}
	for _, path := range []string{"/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	missing("sshd is not installed")
	return ""
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// quiet is for what may be gone already.
func quiet(args ...string) { _ = exec.Command("ip", args...).Run() }

// freeSubnet returns a third byte that no address of this machine has in 198.18.0.0/16.
func freeSubnet(t testing.TB) int {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	taken := map[int]bool{}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if v4 := n.IP.To4(); v4 != nil && v4[0] == 198 && v4[1] == 18 {
				taken[int(v4[2])] = true
			}
		}
	}
	for range 1000 {
		if s := rand.IntN(256); !taken[s] {
			return s
		}
	}
	t.Fatal("no subnet of 198.18.0.0/16 is free")
	return 0
}

// killAll ends the processes of a namespace, by their ids.
func killAll(namespace string) {
	out, err := exec.Command("ip", "netns", "pids", namespace).Output()
	if err != nil {
		return
	}
	for _, field := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// serve starts the host's sshd. "ip netns exec" lays the files of /etc/netns/NAME over those of
// /etc for what it starts, which gives the host accounts of its own. An IPC namespace of its own
// keeps two hosts from sharing memory, which would carry what must go over the network.
func serve(t testing.TB, sshd string, h *HostInfo, dir, keys string) {
	t.Helper()
	h.RootHome, h.UserHome = filepath.Join(dir, "root"), filepath.Join(dir, "home")
	for _, home := range []string{h.RootHome, h.UserHome} {
		if err := os.MkdirAll(home, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(h.UserHome, uid, uid); err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join("/etc/netns", h.Namespace)
	t.Cleanup(func() {
		_ = os.RemoveAll(etc)
		_ = os.Remove("/etc/netns") // only when it is empty
	})
	write(t, etc, "passwd", accounts(t, "/etc/passwd", "root:x:0:0:root:"+h.RootHome+":/bin/sh",
		fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh", User, uid, uid, h.UserHome)), 0o644)
	write(t, etc, "group", accounts(t, "/etc/group", fmt.Sprintf("%s:x:%d:", User, uid)), 0o644)
	write(t, etc, "hostname", []byte(h.ID+"\n"), 0o644)
	host, err := loopback.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	h.HostKey, h.Fingerprint = host.Public, host.Fingerprint
	config := write(t, dir, "sshd_config", []byte(strings.Join([]string{
		"ListenAddress 0.0.0.0", "Port " + strconv.Itoa(h.Port), "HostKey " + write(t, dir, "host_key", host.Private, 0o600),
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"PermitRootLogin yes", "AuthorizedKeysFile " + keys, "Subsystem sftp internal-sftp", "UseDNS no",
	}, "\n")+"\n"), 0o600)
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("ip", "netns", "exec", h.Namespace, "unshare", "--ipc", sshd, "-D", "-e", "-f", config)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killAll(h.Namespace)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd of %s says:\n%s", h.ID, log.String())
		}
	})
}

// accounts returns an account file with lines in place of those for the same names.
func accounts(t testing.TB, path string, lines ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, old := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, _, _ := strings.Cut(old, ":")
		replaced := false
		for _, line := range lines {
			replaced = replaced || strings.HasPrefix(line, name+":")
		}
		if !replaced {
			out = append(out, old)
		}
	}
	return []byte(strings.Join(append(lines, out...), "\n") + "\n")
}

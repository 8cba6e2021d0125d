package remote

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// sshd is a real OpenSSH server on loopback that runs as the user of the test.
type sshd struct {
	dir  string
	addr *net.TCPAddr
	hop  Hop
}

// startSSHD starts one, or skips where sshd is not installed and not required.
func startSSHD(t *testing.T, lines ...string) *sshd {
	t.Helper()
	path, err := exec.LookPath("sshd")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/sshd")
	}
	if err != nil {
		if os.Getenv("NARWHAL_REQUIRE_SSHD") == "1" {
			t.Fatal("sshd is required and not installed")
		}
		t.Skip("sshd is not installed")
	}
	if os.Geteuid() == 0 {
		// sshd's privilege separation folder, which its service makes.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	key, identity := userKey(t)
	s := &sshd{dir: t.TempDir()}
	write := func(name, text string) string {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authorized := write("authorized_keys", key.Public+"\n")
	for name, text := range hostKeys(t) {
		path := write(name, text)
		if !strings.HasSuffix(name, ".pub") {
			lines = append(lines, "HostKey "+path)
		}
	}
	lines = append(lines, "ListenAddress 127.0.0.1", "PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no",
		"KbdInteractiveAuthentication no", "PermitRootLogin yes", "AuthorizedKeysFile "+authorized, "Subsystem sftp internal-sftp")
	config := write("sshd_config", strings.Join(lines, "\n")+"\n")
	s.listen(t, path, config)
	pin, err := os.ReadFile(filepath.Join(s.dir, "ed25519.pub"))
	if err != nil {
		t.Fatal(err)
	}
	s.hop = Hop{ID: "alpha", InFleet: true, Address: "127.0.0.1", Port: s.addr.Port, User: who.Username, Pins: []string{string(pin)},
		Identities: []Identity{{Path: identity, Required: true}}}
	return s
}

// hostKeys are the files of one key of each kind, made once for all servers.
func hostKeys(t *testing.T) map[string]string {
	t.Helper()
	files, err := madeKeys()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var madeKeys = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "narwhal-host-keys")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	files := map[string]string{}
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		path := filepath.Join(dir, kind)
		if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		for _, suffix := range []string{"", ".pub"} {
			text, err := os.ReadFile(path + suffix)
			if err != nil {
				return nil, err
			}
			files[kind+suffix] = string(text)
		}
	}
	return files, nil
})

// listen starts the daemon on a port that was free a moment ago, and takes another when it is lost.
func (s *sshd) listen(t *testing.T, path, config string) {
	t.Helper()
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addr = l.Addr().(*net.TCPAddr)
		_ = l.Close()
		var log bytes.Buffer
		cmd := exec.Command(path, "-D", "-e", "-f", config, "-p", portOf(s.addr))
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan error, 1)
		go func() { exited <- cmd.Wait() }()
		if s.answers(exited) {
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-exited
				if t.Failed() {
					t.Logf("sshd says:\n%s", log.String())
				}
			})
			return
		}
		t.Logf("sshd did not start: %s", log.String())
	}
	t.Fatal("sshd does not start")
}

func portOf(a *net.TCPAddr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

func (s *sshd) answers(exited <-chan error) bool {
	for range 500 {
		select {
		case <-exited:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if c, err := net.Dial("tcp", s.addr.String()); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}

// cable is a TCP relay to a server that a test can cut.
type cable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func lay(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); c.cut(); wg.Wait() })
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
			wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
		}
	})
	return c
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

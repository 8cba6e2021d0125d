package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestOpenSSHRun(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	h := connect(t, Options{}, s.hop)
	if info := h.Hops(); !strings.HasPrefix(info[0].ServerVersion, "SSH-2.0-OpenSSH") {
		t.Errorf("%+v", info)
	}
	res, err := h.Run(limited(t), Command{
		Script: `printf '%s|' "$A" "$S"; cat; tr '\0' ' ' </proc/$PPID/cmdline; echo err >&2; exit 9`, Stdin: []byte("in"),
		Env: map[string]string{"A": "a 'b'"}, SecretEnv: map[string]fleet.Secret{"S": hidden("hunter2")},
	})
	var exit *ExitError
	if !errors.As(err, &exit) || res.Code != 9 || string(res.Stderr) != "err\n" || !strings.HasPrefix(string(res.Stdout), "a 'b'|********|in") {
		t.Errorf("%v %q %q", err, res.Stdout, res.Stderr)
	}
	if res, _ := h.Run(limited(t), Command{Script: "kill -KILL $$"}); res.Code != 137 {
		t.Errorf("signal: %d", res.Code)
	}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, err := h.Run(limited(t), Command{Script: "sleep 0.02; cat", Stdin: []byte("x")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if res, err := h.Run(limited(t), Command{Script: "setsid sleep 30 </dev/null >/dev/null 2>&1 & echo $!", Stay: true}); err != nil || len(res.Stdout) == 0 {
		t.Errorf("stay: %v %q", err, res.Stdout)
	} else if _, err := h.Run(limited(t), Command{Argv: []string{"kill", strings.TrimSpace(string(res.Stdout))}}); err != nil {
		t.Errorf("what stayed is gone: %v", err)
	}
}

func TestOpenSSHCancelAndLoss(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		h, dir := connect(t, Options{}, s.hop), t.TempDir()
		ctx, cancel := context.WithCancel(limited(t))
		done := make(chan error, 1)
		go func() { _, err := h.Run(ctx, Command{Script: "cd " + Quote(dir) + "; " + stubborn}); done <- err }()
		group := pids(t, dir)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, pid := range group {
			ended(t, pid)
		}
	})
	t.Run("loss", func(t *testing.T) {
		t.Parallel()
		c, dir, hop := lay(t, s.addr.String()), t.TempDir(), s.hop
		hop.Port = c.Addr().(*net.TCPAddr).Port
		h := connect(t, Options{}, hop)
		done := make(chan error, 1)
		go func() {
			_, err := h.Run(limited(t), Command{Script: "cd " + Quote(dir) + "; " + stubborn})
			done <- err
		}()
		group := pids(t, dir)
		c.cut()
		var lost *LostError
		if err := <-done; !errors.As(err, &lost) {
			t.Error(err)
		}
		for _, pid := range group {
			ended(t, pid)
		}
	})
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		h := connect(t, Options{}, s.hop)
		_, err := h.Run(limited(t), Command{Argv: []string{"sleep", "100"}, Limit: 200 * time.Millisecond})
		var limit *LimitError
		if !errors.As(err, &limit) {
			t.Error(err)
		}
	})
}

func TestOpenSSHFiles(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	c, dir, hop := lay(t, s.addr.String()), t.TempDir(), s.hop
	hop.Port = c.Addr().(*net.TCPAddr).Port
	h := connect(t, Options{}, hop)
	data := content(24 << 20)
	f := fileOf(filepath.Join(dir, "the file"), data)
	f.Mode = 0o755
	_, err := h.Put(limited(t), hooked(f, 16<<20, func() error {
		eventually(t, "12 MiB on the host", func() bool {
			info, err := os.Stat(partName(f))
			return err == nil && info.Size() >= 12<<20
		})
		c.cut()
		return nil
	}))
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Fatal(err)
	}
	h = connect(t, Options{}, hop)
	w, err := h.Put(limited(t), f)
	if err != nil || w.Resumed < 8<<20 {
		t.Errorf("resume: %+v %v", w, err)
	}
	if w, err = h.Put(limited(t), f); err != nil || !w.Skipped {
		t.Errorf("again: %+v %v", w, err)
	}
	data[5]++
	if w, err = h.Put(limited(t), fileOf(f.Path, data)); err != nil || w.Sent != int64(len(data)) {
		t.Errorf("replace: %+v %v", w, err)
	}
	got, err := h.Get(limited(t), f.Path, int64(len(data)))
	if err != nil || !bytes.Equal(got, data) || len(names(t, dir)) != 1 {
		t.Errorf("%d bytes %v %v", len(got), err, names(t, dir))
	}
	if _, err = h.Get(limited(t), f.Path+"x", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err = h.Put(limited(t), fileOf("/proc/none", []byte("x"))); err == nil || errors.As(err, new(*NoSpaceError)) {
		t.Errorf("write below /proc: %v", err)
	}
}

func TestOpenSSHHostKeys(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		line, err := os.ReadFile(filepath.Join(s.dir, kind+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePin(strings.TrimSpace(string(line)))
		if err != nil {
			t.Fatal(err)
		}
		hop := s.hop
		for _, pin := range []string{string(line), p.fingerprint} {
			hop.Pins = []string{pin}
			if err := open(t, hop); err != nil {
				t.Errorf("%s %s: %v", kind, pin, err)
			}
		}
	}
	hop := s.hop
	hop.Pins = []string{"SHA256:" + strings.Repeat("A", 43)}
	err := open(t, hop)
	var changed *ChangedHostKeyError
	if !errors.As(err, &changed) || len(changed.Got) != 3 {
		t.Errorf("all three keys are looked at: %v", err)
	}
	hop.Pins = nil
	stage(t, open(t, hop), "alpha", StageHostKey)
	hop = s.hop
	hop.User = "no-such-user"
	stage(t, open(t, hop), "alpha", StageAuth)
}

func TestOpenSSHForwarding(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	hop := s.hop
	hop.ID = "gate"
	h := connect(t, Options{}, hop, s.hop)
	if res, err := h.Run(limited(t), Command{Argv: []string{"echo", "through"}}); err != nil || string(res.Stdout) != "through\n" {
		t.Errorf("jump: %v %q", err, res.Stdout)
	}
	tun, err := h.Tunnel(limited(t), "127.0.0.1:0", echo(t, true))
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	c, err := net.Dial("tcp", tun.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	data := content(1 << 20)
	_, _ = c.Write(data)
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes %v", len(got), err)
	}
	closed := startSSHD(t, "AllowTcpForwarding no", "MaxSessions 2")
	h = connect(t, Options{}, closed.hop)
	_, err = h.Dial(limited(t), "tcp", s.addr.String())
	var forward *ForwardError
	if !errors.As(err, &forward) || !forward.Prohibited {
		t.Errorf("forbidden: %v", err)
	}
}

// Many connections at once through one jump host stay below MaxStartups by sharing its connection.
func TestOpenSSHManyThroughOneJumpHost(t *testing.T) {
	t.Parallel()
	gate, s := startSSHD(t), startSSHD(t, "MaxStartups 100")
	gate.hop.ID = "gate"
	jumps := NewJumps()
	defer jumps.Close()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			h, err := Open(limited(t), Config{ID: "alpha", Hops: []Hop{gate.hop, s.hop}}, Options{Jumps: jumps})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

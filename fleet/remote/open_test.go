package remote

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"golang.org/x/crypto/ssh"
)

func open(t *testing.T, hops ...Hop) error {
	t.Helper()
	h, err := Open(limited(t), Config{ID: hops[len(hops)-1].ID, Hops: hops}, Options{ConnectTimeout: 25 * time.Second})
	if err == nil {
		_ = h.Close()
	}
	return err
}

func stage(t *testing.T, err error, hop string, want Stage) {
	t.Helper()
	var e *HopError
	if !errors.As(err, &e) || e.Hop != hop || e.Stage != want {
		t.Errorf("got %v, want hop %s at stage %s", err, hop, want)
	}
	if err != nil && Hint(err) == "" {
		t.Errorf("no hint for %v", err)
	}
}

func TestJumpChain(t *testing.T) {
	key, path := userKey(t)
	var servers []*loopback.Server
	var hops []Hop
	for _, id := range []string{"outer", "inner", "alpha"} {
		s := serve(t, loopback.Config{Authorized: []string{key.Public}})
		servers, hops = append(servers, s), append(hops, hopTo(s, id, path))
	}
	h := connect(t, Options{}, hops...)
	res, err := h.Run(limited(t), Command{Argv: []string{"pwd"}})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != servers[2].Root() {
		t.Fatalf("%v %q", err, res.Stdout)
	}
	if info := h.Hops(); len(info) != 3 || info[0].ID != "outer" || info[2].ID != "alpha" || info[2].KeyType != ssh.KeyAlgoED25519 {
		t.Errorf("hops: %+v", info)
	}
	if _, err := h.Put(limited(t), fileOf(filepath.Join(servers[2].Root(), "f"), content(300_000))); err != nil {
		t.Error(err)
	}
	t.Run("loss names the jump host", func(t *testing.T) {
		servers[1].Drop()
		<-h.Lost()
		var lost *LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Host != "alpha" || lost.Hop != "inner" {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("failure names the jump host", func(t *testing.T) {
		bad := append([]Hop(nil), hops...)
		bad[1].Pins = []string{"SHA256:" + strings.Repeat("A", 43)}
		stage(t, open(t, bad...), "inner", StageHostKey)
		servers[1].Refuse(true)
		stage(t, open(t, hops...), "inner", StageHandshake)
	})
}

func TestStages(t *testing.T) {
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	good := hopTo(s, "alpha", path)

	h := good
	h.Address = "no-such-host.invalid"
	stage(t, open(t, h), "alpha", StageResolve)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h = good
	h.Port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	stage(t, open(t, h), "alpha", StageConnect)

	other, _ := loopback.GenerateKey()
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, other.Private, 0o600); err != nil {
		t.Fatal(err)
	}
	h = good
	h.Identities = []Identity{{Path: wrong, Required: true}}
	err = open(t, h)
	stage(t, err, "alpha", StageAuth)
	var auth *AuthError
	if !errors.As(err, &auth) || len(auth.Tried) != 1 {
		t.Errorf("auth: %+v", auth)
	}
	h.Identities = []Identity{{Path: wrong + "-missing", Required: true}}
	if err = open(t, h); !errors.As(err, &auth) || len(auth.Problems) != 1 {
		t.Errorf("auth: %v", err)
	}
	stage(t, open(t, Hop{ID: "alpha", InFleet: true, Address: good.Address, Port: good.Port, User: "u", Pins: good.Pins}), "alpha", StageAuth)
}

func TestSilentServerTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr)
	cfg := Config{ID: "alpha", Hops: []Hop{{ID: "alpha", Address: "127.0.0.1", Port: addr.Port, User: "u"}}}
	_, err = Open(limited(t), cfg, Options{ConnectTimeout: 50 * time.Millisecond})
	stage(t, err, "alpha", StageHandshake)
	if !errors.Is(err, errSilent) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	cancel()
	if _, err = Open(ctx, cfg, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestUnknownHostKey(t *testing.T) {
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	h := hopTo(s, "alpha-1", path)
	line, fingerprint := s.HostKey()
	h.Pins = nil
	err := open(t, h)
	stage(t, err, "alpha-1", StageHostKey)
	var unknown *UnknownHostKeyError
	if !errors.As(err, &unknown) || unknown.Fingerprint != fingerprint || unknown.Pin != line {
		t.Fatalf("%+v", unknown)
	}
	if want := `deploy: hosts: "alpha-1": host_keys: ["` + line + `"]`; unknown.FleetLine != want || !strings.Contains(Hint(err), want) {
		t.Errorf("%s\n%s", unknown.FleetLine, Hint(err))
	}
	h.Pins = []string{unknown.Pin}
	if err := open(t, h); err != nil {
		t.Errorf("with the pin: %v", err)
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("# comment\n"+unknown.KnownHostsLine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Pins, h.KnownHosts = nil, []string{file, file + "-missing"}
	if err := open(t, h); err != nil {
		t.Errorf("with the known_hosts line: %v", err)
	}
	t.Run("changed in known_hosts", func(t *testing.T) {
		other, _ := loopback.GenerateKey()
		if err := s.SetHostKey(other.Private); err != nil {
			t.Fatal(err)
		}
		err := open(t, h)
		stage(t, err, "alpha-1", StageHostKey)
		var changed *ChangedHostKeyError
		if !errors.As(err, &changed) || changed.Want[0].Source != file+":2" || changed.Got[0] != other.Fingerprint {
			t.Errorf("%v %+v", err, changed)
		}
		if !strings.Contains(Hint(err), file+":2") {
			t.Error(Hint(err))
		}
	})
}

func TestChangedHostKeyNeverPasses(t *testing.T) {
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	h := hopTo(s, "alpha", path)
	_, fingerprint := s.HostKey()
	other, _ := loopback.GenerateKey()
	if err := s.SetHostKey(other.Private); err != nil {
		t.Fatal(err)
	}
	pinned := h.Pins
	for name, pins := range map[string][]string{"key": pinned, "fingerprint": {fingerprint}} {
		h.Pins = pins
		err := open(t, h)
		stage(t, err, "alpha", StageHostKey)
		var changed *ChangedHostKeyError
		if !errors.As(err, &changed) || len(changed.Got) != 1 || changed.Got[0] != other.Fingerprint ||
			len(changed.Want) != 1 || changed.Want[0] != (Expected{"pin 1", fingerprint}) {
			t.Errorf("%s: %v %+v", name, err, changed)
		}
	}
	h.Pins = append([]string{other.Fingerprint}, pinned...)
	if err := open(t, h); err != nil {
		t.Errorf("one of two pins matches: %v", err)
	}
	// A known_hosts file does not soften a pin.
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("* "+other.Public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Pins, h.KnownHosts = pinned, []string{file}
	stage(t, open(t, h), "alpha", StageHostKey)
	t.Run("revoked", func(t *testing.T) {
		if err := os.WriteFile(file, []byte("* "+other.Public+"\n@revoked * "+other.Public+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Pins = nil
		err := open(t, h)
		var changed *ChangedHostKeyError
		if !errors.As(err, &changed) || !changed.Revoked || changed.Want[0].Source != file+":2" {
			t.Errorf("%v %+v", err, changed)
		}
	})
}

// twoKeys serves a handshake with an ed25519 and an RSA host key, and lets everyone in.
func twoKeys(t *testing.T) (hop Hop, lines map[string]string) {
	t.Helper()
	first, err := loopback.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	a, _ := ssh.ParsePrivateKey(first.Private)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := ssh.NewSignerFromKey(private)
	cfg := &ssh.ServerConfig{NoClientAuth: true}
	cfg.AddHostKey(a)
	cfg.AddHostKey(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if conn, channels, requests, err := ssh.NewServerConn(c, cfg); err == nil {
					go ssh.DiscardRequests(requests)
					for range channels {
					}
					_ = conn.Close()
				}
			})
		}
	})
	lines = map[string]string{}
	for name, s := range map[string]ssh.Signer{"ed25519": a, "rsa": b} {
		lines[name] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
		lines[name+" fingerprint"] = ssh.FingerprintSHA256(s.PublicKey())
	}
	return Hop{ID: "alpha", InFleet: true, Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "u"}, lines
}

func TestPinsDecideTheAlgorithm(t *testing.T) {
	hop, lines := twoKeys(t)
	for _, name := range []string{"ed25519", "rsa", "ed25519 fingerprint", "rsa fingerprint"} {
		hop.Pins = []string{lines[name]}
		if err := open(t, hop); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	hop.Pins = []string{"SHA256:" + strings.Repeat("A", 43)}
	err := open(t, hop)
	var changed *ChangedHostKeyError
	if !errors.As(err, &changed) || len(changed.Got) != 2 {
		t.Errorf("both keys are looked at: %v", err)
	}
	file := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(file, []byte("* "+lines["rsa"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hop.Pins, hop.KnownHosts = nil, []string{file}
	if err := open(t, hop); err != nil {
		t.Errorf("known by its RSA key only: %v", err)
	}
}

func TestPinnedTypeIsMissing(t *testing.T) {
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	h := hopTo(s, "alpha", path)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, _ := ssh.NewPublicKey(private.Public())
	pin := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	file := filepath.Join(t.TempDir(), "known_hosts")
	for name, line := range map[string]string{"pin": "", "known_hosts": "* " + pin, "authority": "@cert-authority * " + h.Pins[0]} {
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h := h
		h.Pins, h.KnownHosts = nil, []string{file}
		if name == "pin" {
			h.Pins = []string{pin}
		}
		err := open(t, h)
		var changed *ChangedHostKeyError
		if !errors.As(err, &changed) || len(changed.Got) != 0 || len(changed.Offered) == 0 || len(changed.Want) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJumpsAreShared(t *testing.T) {
	key, path := userKey(t)
	gate := serve(t, loopback.Config{Authorized: []string{key.Public}})
	jumps := NewJumps()
	var hosts []*Host
	for range 6 {
		s := serve(t, loopback.Config{Authorized: []string{key.Public}})
		hosts = append(hosts, connect(t, Options{Jumps: jumps}, hopTo(gate, "gate", path), hopTo(s, "alpha", path)))
	}
	for _, h := range hosts {
		if h.conn.via != hosts[0].conn.via {
			t.Error("a host has a jump connection of its own")
		}
	}
	_ = hosts[0].Close()
	if _, err := hosts[1].Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
		t.Errorf("after another host was closed: %v", err)
	}
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	gate.Drop() // which this side may not know yet
	h := connect(t, Options{Jumps: jumps}, hopTo(gate, "gate", path), hopTo(s, "alpha", path))
	if _, err := h.Run(limited(t), Command{Argv: []string{"true"}}); err != nil {
		t.Errorf("the jump host is dialled again: %v", err)
	}
	_ = jumps.Close()
	<-h.Lost()
}

func TestManyHostsAtOnce(t *testing.T) {
	const n = 64
	key, path := userKey(t)
	hops := make([]Hop, n)
	for i := range hops {
		hops[i] = hopTo(serve(t, loopback.Config{Authorized: []string{key.Public}}), "alpha", path)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, hop := range hops {
		wg.Go(func() {
			h, err := Open(limited(t), Config{ID: "alpha", Hops: []Hop{hop}}, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Close()
			for range 3 {
				if _, err := h.Run(limited(t), Command{Script: "uname -a; cat /proc/meminfo; df -k /", SecretEnv: map[string]fleet.Secret{"A": hidden("abc")}}); err != nil {
					t.Error(err)
				}
			}
			if _, err := h.Get(limited(t), "/proc/cpuinfo", 1<<20); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d hosts, 3 scripts and one get each: %s", n, time.Since(start))
}

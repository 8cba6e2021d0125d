package discover_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// hosts starts loopback hosts and returns a fleet with engines on each, its servers by host
// id, and the runner's way to them.
func hosts(tb testing.TB, n, engines int) (fleet.Fleet, map[string]*loopback.Server, gates.Connect) {
	tb.Helper()
	user, err := loopback.GenerateKey()
	if err != nil {
		tb.Fatal(err)
	}
	key, err := loopback.GenerateKey()
	if err != nil {
		tb.Fatal(err)
	}
	identity := filepath.Join(tb.TempDir(), "key")
	if err := os.WriteFile(identity, user.Private, 0o600); err != nil {
		tb.Fatal(err)
	}
	f := fleet.Fleet{Deploy: &fleet.Deploy{
		Name: "scale", Hosts: map[string]fleet.Host{}, Engines: map[string]fleet.Place{}, Defaults: fleet.Defaults{Launch: "l"},
		Launch: map[string]fleet.Launch{"l": {Kind: fleet.LaunchSimulated}}, Router: fleet.Router{Host: "h0", Listen: "127.0.0.1:1"},
		Policy: fleet.Policy{MaxClockOffset: fleet.Duration(10 * time.Second)},
	}}
	servers := map[string]*loopback.Server{}
	for i := range n {
		id, home := fmt.Sprint("h", i), tb.TempDir()
		s, err := loopback.Start(loopback.Config{Root: home, HostKey: key.Private, Authorized: []string{user.Public}, Listen: "127.0.0.1:0"})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = s.Close() })
		line, _ := s.HostKey()
		_, port, _ := strings.Cut(s.Addr(), ":")
		var p int
		_, _ = fmt.Sscan(port, &p)
		servers[id] = s
		f.Deploy.Hosts[id] = fleet.Host{Address: "127.0.0.1", Port: p, User: "u", HostKeys: []string{line}, Identity: "file:" + identity, Root: filepath.Join(home, "n")}
		for j := range engines {
			e := fmt.Sprintf("e%d-%d", i, j)
			f.Engines = append(f.Engines, fleet.Engine{IID: e, URL: "http://127.0.0.1:1"})
			f.Deploy.Engines[e] = fleet.Place{Host: id}
		}
	}
	return f, servers, func(ctx context.Context, id string) (gates.Host, error) {
		cfg, err := remote.FromFleet(f, id, nil)
		if err != nil {
			return nil, err
		}
		return remote.Open(ctx, cfg, remote.Options{ConnectTimeout: 20 * time.Second, MaxOutput: 8 << 20})
	}
}

// run passes the fleet through gate A.
func run(tb testing.TB, f fleet.Fleet, connect gates.Connect) (gates.Outcome, *record.Run, time.Duration) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "runs", "r")
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		tb.Fatal(err)
	}
	rec, err := record.Create(dir, record.Header{Run: "r", FleetName: "scale", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = rec.Close() })
	r := &gates.Runner{Gates: []gates.Gate{discover.Gate{}}, Fleet: f, Record: rec, Dir: dir, RunID: "r", Connect: connect, Progress: gates.Quiet{}, Secrets: func(fleet.SecretRef) (fleet.Secret, error) { return fleet.Secret{}, nil }}
	tb.Cleanup(func() { _ = r.Close() })
	began := time.Now()
	out, _ := r.Run(tb.Context(), gates.Options{})
	return out, rec, time.Since(began)
}

// TestManyHosts takes 64 hosts with 8 engines each through the gate within a time that is
// far above what it needs, so that a cost that grows with the square of the fleet is seen.
// BenchmarkGate measures.
func TestManyHosts(t *testing.T) {
	f, _, connect := hosts(t, 64, 8)
	out, rec, took := run(t, f, connect)
	if state := rec.State().Gates["A"].State; state != record.VerdictPassed || took > 30*time.Second {
		t.Errorf("%s in %s: %v", state, took, out.Errors)
	}
}

// TestHostThatHangs costs its own evidence: the others are observed.
func TestHostThatHangs(t *testing.T) {
	f, servers, connect := hosts(t, 8, 1)
	f.Deploy.Limits.FanOut = 4
	muted := func(ctx context.Context, id string) (gates.Host, error) {
		h, err := connect(ctx, id)
		if id == "h3" && err == nil {
			return &hanging{Host: h}, nil
		}
		return h, err
	}
	_ = servers
	out, rec, took := run(t, f, muted)
	st := rec.State().Gates["A"]
	if st.State != record.VerdictInconclusive || len(st.Evidence) != 1+4*7 || len(out.Errors) != 1 || out.Errors[0].Host != "h3" || took > 20*time.Second {
		t.Errorf("%s in %s with %d pieces of evidence: %v", st.State, took, len(st.Evidence), out.Errors)
	}
}

// hanging is a host whose commands end only with their limit.
type hanging struct{ gates.Host }

func (h *hanging) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	c.Argv, c.Script, c.Limit = nil, "sleep 600", 2*time.Second
	return h.Host.Run(ctx, c)
}

// BenchmarkGate passes whole fleets; the hosts are loopback servers on this machine.
func BenchmarkGate(b *testing.B) {
	for _, c := range []struct{ hosts, engines int }{{64, 8}, {500, 1}} {
		b.Run(fmt.Sprintf("%dx%d", c.hosts, c.engines), func(b *testing.B) {
			f, _, connect := hosts(b, c.hosts, c.engines)
			for b.Loop() {
				if out, rec, _ := run(b, f, connect); rec.State().Gates["A"].State != record.VerdictPassed {
					b.Fatal(out.Errors)
				}
			}
		})
	}
}

package gates

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Schema: fleet.Schema, SchemaVersion: fleet.Version, Model: "m", SLO: fleet.SLO{TTFTS: 1, TPOTS: 0.1},
		Engines: []fleet.Engine{{IID: "e", URL: "http://192.0.2.11:8100", Role: fleet.RoleDecode}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Address: "192.0.2.11", Root: "/opt/n"}},
			Engines: map[string]fleet.Place{"e": {Host: "h1", Launch: "l"}}, Launch: map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"serve", "{model}"}}},
			Router: fleet.Router{Host: "h1", Listen: "127.0.0.1:8000"},
		},
	}
}

var testSigner = sync.OnceValue(func() *attest.Signer {
	private, _, err := attest.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	s, err := attest.LoadSigner(private, nil)
	if err != nil {
		panic(err)
	}
	return s
})

// rig is a tiny pipeline on a real record and a scripted host.
type rig struct {
	t     testing.TB
	world *world
	fleet fleet.Fleet
	dir   string
	gates []Gate
	rel   Release
	host  Host // of h1; nil = world
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, world: newWorld(t), fleet: testFleet(), dir: filepath.Join(t.TempDir(), "run"), gates: []Gate{first{}, third{}}, rel: Release{SHA256: "r1"}}
	rec, err := record.Create(r.dir, record.Header{Run: "run-1", FleetName: "tern", Fleet: mustJSON(r.fleet), Version: "test"}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// open starts a process's worth of work: a new runner on the record. End closes it.
func (r *rig) open() (run *Runner, end func()) {
	r.t.Helper()
	rec, err := record.Open(r.dir, record.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	run = &Runner{
		Gates: r.gates, Fleet: r.fleet, Release: r.rel, Record: rec, Dir: r.dir, RunID: "run-1", Progress: Quiet{}, Signer: testSigner(), Holder: "op",
		Approve: func(Info, Plan) error { return nil },
		Secrets: func(fleet.SecretRef) (fleet.Secret, error) {
			return fleet.Secret{}, errors.New("no secret is scripted")
		},
	}
	r.world.policy = run.Guard
	run.Connect = func(_ context.Context, id string) (Host, error) {
		if id != "h1" {
			r.t.Errorf("not scripted: host %s", id)
		}
		if r.world.offline != nil {
			return nil, r.world.offline
		}
		if r.host != nil {
			return r.host, nil
		}
		return r.world, nil
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = run.Close()
			_ = rec.Close()
		})
	}
	r.t.Cleanup(end)
	return run, end
}

// run does what one command does.
func (r *rig) run(ctx context.Context, o Options) (Outcome, error) {
	r.t.Helper()
	run, end := r.open()
	defer end()
	return run.Run(ctx, o)
}

// pass runs and wants success.
func (r *rig) pass(o Options) Outcome {
	r.t.Helper()
	out, err := r.run(r.t.Context(), o)
	if err != nil || out.Status != problem.Success {
		r.t.Fatalf("run: %v, %v, %v", out.Status, err, out.Errors)
	}
	return out
}

// state reads the record beside whoever writes it.
func (r *rig) state() record.State {
	r.t.Helper()
	s, err := record.Read(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.State
}

// kinds lists the record's events as "kind step".
func (r *rig) kinds(want ...record.Kind) []string {
	r.t.Helper()
	s, err := record.Read(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, ev := range s.Events {
		if slices.Contains(want, ev.Kind) {
			out = append(out, strings.TrimSpace(string(ev.Kind)+" "+ev.Step))
		}
	}
	return out
}

// verify wants the record to hold.
func (r *rig) verify() Verification {
	r.t.Helper()
	v, err := Verify(r.dir, r.gates, []*attest.Public{testSigner().Public()})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(v.Problems) > 0 {
		r.t.Errorf("the record does not hold: %+v", v.Problems)
	}
	return v
}

func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

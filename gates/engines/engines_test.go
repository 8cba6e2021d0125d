package engines

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Model:   "tiny",
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://[2001:db8::12]:8100"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}},
			Engines: map[string]fleet.Place{"p0": {Host: "h1", Launch: "l"}, "d0": {Host: "h2", Launch: "l"}},
			Launch: map[string]fleet.Launch{"l": {
				Kind: fleet.LaunchProcess, Argv: []string{"vllm", "serve", "--port", "{port}"}, Env: map[string]string{"UCX_TLS": "tcp"},
				Secrets: map[string]fleet.SecretRef{"HF_TOKEN": "env:THE_TOKEN", "A_KEY": "file:/k"}, Ports: fleet.Ports{SideChannel: 5600, UCX: "45000-45002"},
			}},
			Router: fleet.Router{Host: "h1"},
		},
	}
}

func resolve(t *testing.T, f fleet.Fleet, iid string) fleet.Resolved {
	t.Helper()
	r, err := f.Resolve(iid)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestListens(t *testing.T) {
	f := testFleet()
	for iid, want := range map[string][]string{
		"p0": {"192.0.2.11:8100", "192.0.2.11:5600", "192.0.2.11:45000", "192.0.2.11:45001", "192.0.2.11:45002"},
		"d0": {"[2001:db8::12]:8100", "[2001:db8::12]:5600", "[2001:db8::12]:45000", "[2001:db8::12]:45001", "[2001:db8::12]:45002"},
	} {
		if got := listens(resolve(t, f, iid)); !slices.Equal(got, want) {
			t.Errorf("%s: %v", iid, got)
		}
	}
	if got := listens(fleet.Resolved{Listen: "127.0.0.1:1", Workers: []string{"h"}, Meet: 29500}); !slices.Equal(got, []string{"127.0.0.1:1", "127.0.0.1:29500"}) {
		t.Errorf("with ranks: %v", got)
	}
	for _, ucx := range []string{"", "x-y", "9-1", "45000", "0-100000000"} {
		if got := listens(fleet.Resolved{Listen: "127.0.0.1:1", UCX: ucx}); len(got) > 1025 || len(got) > 1 && ucx != "0-100000000" {
			t.Errorf("%q: %d addresses", ucx, len(got))
		}
	}
}

func TestSpec(t *testing.T) {
	f := testFleet()
	p := resolve(t, f, "p0")
	s, err := Spec(f, p)
	if err != nil || s.Name != "engine-p0" || !slices.Equal(s.Argv, []string{"vllm", "serve", "--port", "8100"}) || s.Launch != p.Digest() || s.Env["UCX_TLS"] != "tcp" {
		t.Errorf("process: %+v, %v", s, err)
	}
	if !slices.Equal(s.Inherit, []string{"A_KEY", "HF_TOKEN"}) {
		t.Errorf("inherits %v", s.Inherit)
	}

	sim := p
	sim.Kind, sim.Argv, sim.Simulated = fleet.LaunchSimulated, nil, &fleet.Simulated{Seed: 7, BlockSize: 16}
	s, err = Spec(f, sim)
	if err != nil || s.Argv[0] != "/opt/n/current/narwhal" || s.Argv[1] != "engine" {
		t.Errorf("simulated: %v, %v", s.Argv, err)
	}
	var back fleet.Simulated
	if i := slices.Index(s.Argv, "--params"); i < 0 || json.Unmarshal([]byte(s.Argv[i+1]), &back) != nil || back != *sim.Simulated {
		t.Errorf("simulated: %v", s.Argv)
	}

	for name, change := range map[string]func(*fleet.Resolved){
		"a unit of the system with secrets": func(r *fleet.Resolved) { r.Kind, r.Unit = fleet.LaunchSystemd, "x.service" },
		"no kind":                           func(r *fleet.Resolved) { r.Kind = "" },
		"no command":                        func(r *fleet.Resolved) { r.Argv = nil },
	} {
		r := p
		change(&r)
		if _, err := Spec(f, r); problem.StatusOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// forecast plans gate C on a fresh record.
func forecast(t *testing.T, f fleet.Fleet) map[string]gates.Step {
	t.Helper()
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}}
	got, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]gates.Step{}
	for _, s := range got.Gates[0].Plan.Steps {
		out[s.ID] = s
	}
	return out
}

func TestPlan(t *testing.T) {
	steps := forecast(t, testFleet())
	if len(steps) != 10 {
		t.Fatalf("%d steps", len(steps))
	}
	for _, chain := range [][2]string{{"C/launch/p0", "C/ports/p0"}, {"C/live/p0", "C/launch/p0"}, {"C/listener/p0", "C/live/p0"}, {"C/cache/p0", "C/listener/p0"}} {
		if s := steps[chain[0]]; !slices.Equal(s.Needs, []string{chain[1]}) || s.Engine != "p0" || s.Host != "h1" {
			t.Errorf("%s needs %v", chain[0], s.Needs)
		}
	}
	l := steps["C/launch/d0"]
	if l.Effect != gates.Mutate || l.Undo == nil || l.Undo.Stops != "engine-d0" || l.Check == nil || len(l.Secrets) != 2 {
		t.Errorf("launch %+v", l)
	}
	if strings.Contains(strings.Join(l.Argv, " "), "THE_TOKEN") {
		t.Errorf("a secret's source is on the command line: %v", l.Argv)
	}
	if got := steps["C/live/p0"].Limit.D(); got != 11*time.Minute {
		t.Errorf("live may take %s", got)
	}
}

// TestTurns starts engines that may share a GPU one after another, others at once.
func TestTurns(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fleet.Fleet)
		wait   bool // x, on the host of p0, waits for it
	}{
		"a shared device": {func(f *fleet.Fleet) {
			for _, i := range []int{0, 2} {
				f.Engines[i].SharedDevice = &fleet.SharedDevice{Group: "g", GPUUUID: "GPU-1"}
			}
		}, true},
		"nothing says which GPU": {func(*fleet.Fleet) {}, true},
		"one says nothing": {func(f *fleet.Fleet) {
			f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "l", GPUs: []string{"1"}}
		}, true},
		"GPUs of their own": {func(f *fleet.Fleet) {
			f.Deploy.Engines["p0"] = fleet.Place{Host: "h1", Launch: "l", GPUs: []string{"0", "1"}}
			f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "l", GPUs: []string{"2", "3"}}
		}, false},
		"one GPU in common": {func(f *fleet.Fleet) {
			f.Deploy.Engines["p0"] = fleet.Place{Host: "h1", Launch: "l", GPUs: []string{"0", "1"}}
			f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "l", GPUs: []string{"1", "2"}}
		}, true},
		"variables": {func(f *fleet.Fleet) {
			l := f.Deploy.Launch["l"]
			l.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0, 1"}
			f.Deploy.Launch["l"] = l
			l.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "2"}
			f.Deploy.Launch["m"] = l
			f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "m"}
		}, false},
		"no GPU": {func(f *fleet.Fleet) {
			l := f.Deploy.Launch["l"]
			l.Env = map[string]string{"CUDA_VISIBLE_DEVICES": ""}
			f.Deploy.Launch["l"] = l
		}, false},
		"simulated engines": {func(f *fleet.Fleet) { f.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchSimulated} }, false},
	} {
		f := testFleet()
		f.Engines = append(f.Engines, fleet.Engine{IID: "x", URL: "http://192.0.2.11:8102"})
		f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "l"}
		c.change(&f)
		steps := forecast(t, f)
		want := []string{"C/ports/x"}
		if c.wait {
			want = append(want, "C/live/p0")
		}
		if got := steps["C/launch/x"].Needs; !slices.Equal(got, want) {
			t.Errorf("%s: the second engine needs %v, want %v", name, got, want)
		}
		for _, id := range []string{"C/launch/p0", "C/launch/d0"} {
			if got := steps[id].Needs; len(got) != 1 {
				t.Errorf("%s: %s needs %v", name, id, got)
			}
		}
	}
}

// TestRanks launches the ranks of an engine at once, each on its host, and waits for all.
func TestRanks(t *testing.T) {
	f := testFleet()
	f.Deploy.Hosts["h3"] = fleet.Host{Root: "/opt/n", Address: "192.0.2.13"}
	f.Deploy.Engines["p0"] = fleet.Place{Host: "h1", Launch: "l", Workers: []string{"h3"}, Ports: &fleet.Ports{SideChannel: 5600, Rendezvous: 29500}}
	l := f.Deploy.Launch["l"]
	l.Argv = []string{"serve", "--node-rank", "{rank}", "--nnodes", "{nodes}", "--master-addr", "{head}", "--master-port", "{rendezvous}", "--host", "{listen}"}
	f.Deploy.Launch["l"] = l
	steps := forecast(t, f)
	for id, want := range map[string]struct{ host, argv, name string }{
		"C/launch/p0": {"h1", `"serve","--node-rank","0","--nnodes","2","--master-addr","192.0.2.11","--master-port","29500","--host","192.0.2.11"`, `"name":"engine-p0"`},
		"C/rank/p0/1": {"h3", `"serve","--node-rank","1","--nnodes","2","--master-addr","192.0.2.11","--master-port","29500","--host","192.0.2.13"`, `"name":"engine-p0-rank-1"`},
	} {
		s := steps[id]
		if line := strings.Join(s.Argv, " "); s.Host != want.host || !strings.Contains(line, want.argv) || !strings.Contains(line, want.name) || !slices.Equal(s.Needs, []string{"C/ports/p0"}) || s.Undo == nil {
			t.Errorf("%s: on %s, needs %v: %s", id, s.Host, s.Needs, line)
		}
	}
	if s := steps["C/joined/p0/1"]; s.Host != "h3" || !slices.Equal(s.Needs, []string{"C/rank/p0/1", "C/launch/p0"}) || !strings.Contains(strings.Join(s.Argv, " "), `"joins":true`) {
		t.Errorf("joined: %+v", s)
	}
	if got := steps["C/live/p0"].Needs; !slices.Equal(got, []string{"C/rank/p0/1", "C/launch/p0"}) {
		t.Errorf("live needs %v", got)
	}
	if a, b := steps["C/rank/p0/1"], steps["C/launch/p0"]; a.Yields == b.Yields || a.Yields != rankKey("p0", 1) {
		t.Errorf("they yield %s and %s", a.Yields, b.Yields)
	}
	b, _ := json.Marshal(gates.Launched{Name: "engine-p0-rank-1", ID: "b:1:2", Launch: "l"})
	if got := (Gate{}).Facts(rankKey("p0", 1), b); got["proc/engine-p0-rank-1/launch"] != "l" {
		t.Errorf("facts %v", got)
	}
	if keys := (Gate{}).Expect(f); !slices.Contains(keys, rankKey("p0", 1)) || !slices.Contains(f.WorkHosts(), "h3") {
		t.Errorf("expects %v on %v", keys, f.WorkHosts())
	}
}

func TestFacts(t *testing.T) {
	l, err := json.Marshal(gates.Launched{Name: "engine-p0", ID: "b:1:2", Launch: "l"})
	if err != nil {
		t.Fatal(err)
	}
	got := Gate{}.Facts(launchKey("p0"), l)
	if got["proc/engine-p0/id"] != "b:1:2" || got["proc/engine-p0/launch"] != "l" || len(got) != 2 {
		t.Errorf("facts %v", got)
	}
	for k, b := range map[record.Key][]byte{launchKey("d0"): l, liveKey("p0"): l, launchKey("p0"): []byte("x")} {
		if got := (Gate{}).Facts(k, b); got != nil {
			t.Errorf("%s: %v", k, got)
		}
	}
}

// TestHalts stops before a launch whose ports are taken and behind an engine that is not ready.
func TestHalts(t *testing.T) {
	for _, c := range []struct {
		key   record.Key
		value any
		want  string
	}{
		{portsKey("p0"), Ports{Taken: []gates.Taken{{Address: "192.0.2.11:8100", Why: "in use"}}}, "192.0.2.11:8100 is taken"},
		{portsKey("p0"), Ports{Ours: true}, ""},
		{liveKey("p0"), Live{}, "the engine is not ready"},
		{liveKey("p0"), Live{Ready: true}, ""},
		{launchKey("p0"), gates.Launched{}, ""},
		{portsKey("p0"), "garbage", ""},
	} {
		b, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Gate{}).Halts(c.key, b); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.key, b, got, c.want)
		}
	}
}

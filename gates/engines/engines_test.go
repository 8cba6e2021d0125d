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

	c := p
	c.Kind, c.Image, c.Runtime, c.ModelDir = fleet.LaunchContainer, "img@sha256:1", "podman", "/models/m"
	s, err = Spec(f, c)
	line := strings.Join(s.Argv, " ")
	if err != nil || s.Argv[0] != "podman" || !strings.Contains(line, "--name narwhal-tern-p0 ") || !strings.Contains(line, "--volume /models/m:/models/m:ro ") ||
		!strings.Contains(line, "--env A_KEY --env HF_TOKEN --env UCX_TLS img@sha256:1 vllm serve") {
		t.Errorf("container: %s, %v", line, err)
	}
	if strings.Contains(line, "tcp") || strings.Contains(line, "THE_TOKEN") {
		t.Errorf("container: a value is on the command line: %s", line)
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
		"systemd":    func(r *fleet.Resolved) { r.Kind = fleet.LaunchSystemd },
		"no kind":    func(r *fleet.Resolved) { r.Kind = "" },
		"no command": func(r *fleet.Resolved) { r.Argv = nil },
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
	if len(steps) != 8 {
		t.Fatalf("%d steps", len(steps))
	}
	for _, chain := range [][2]string{{"C/launch/p0", "C/ports/p0"}, {"C/live/p0", "C/launch/p0"}, {"C/cache/p0", "C/live/p0"}} {
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

// TestPlanSharesADevice starts engines of one device one after another, others at once.
func TestPlanSharesADevice(t *testing.T) {
	f := testFleet()
	f.Engines = append(f.Engines, fleet.Engine{IID: "x", URL: "http://192.0.2.11:8102"})
	f.Deploy.Engines["x"] = fleet.Place{Host: "h1", Launch: "l"}
	for i, share := range []*fleet.SharedDevice{{Group: "g", GPUUUID: "GPU-1"}, nil, {Group: "g", GPUUUID: "GPU-1"}} {
		f.Engines[i].SharedDevice = share
	}
	steps := forecast(t, f)
	if got := steps["C/launch/x"].Needs; !slices.Equal(got, []string{"C/ports/x", "C/live/p0"}) {
		t.Errorf("the second engine of the device needs %v", got)
	}
	for _, id := range []string{"C/launch/p0", "C/launch/d0"} {
		if got := steps[id].Needs; len(got) != 1 {
			t.Errorf("%s needs %v", id, got)
		}
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

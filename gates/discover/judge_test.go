package discover

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// clock is when the recorded answers were taken.
var clockTaken = time.Unix(1764442262, 200e6)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://192.0.2.12:8100"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}, "jump": {}},
			Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h2"}}, Router: fleet.Router{Host: "h1"},
			Policy: fleet.Policy{MaxClockOffset: fleet.Duration(500 * time.Millisecond), MinDiskFree: 1 << 30},
			Fabric: fleet.Fabric{Interface: "eth1"},
		},
	}
}

// view is what the judge sees of the fleet, a release and recorded evidence.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key][]byte) gates.View {
	t.Helper()
	all := map[record.Key]any{}
	for k, b := range evidence {
		all[k] = b
	}
	return gatestest.View(t, f, gates.Release{Arch: "linux/amd64"}, clockTaken, all)
}

func found(fs []record.Finding) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Code+"@"+f.Host)
	}
	slices.Sort(out)
	return out
}

func TestJudge(t *testing.T) {
	const file = "/models/m"
	sum := strings.Repeat("a", 64)
	withFile := func(b, digest string) string {
		return strings.Replace(b, "== files\n", "== files\n"+digest+" 1 2 3 "+file+"\n", 1)
	}
	named := func(f *fleet.Fleet, hosts ...string) {
		for _, h := range hosts {
			x := f.Deploy.Hosts[h]
			x.Files = []string{file}
			f.Deploy.Hosts[h] = x
		}
	}
	for name, c := range map[string]struct {
		fleet  func(*fleet.Fleet)
		h1, h2 func(string) string
		want   []string
	}{
		"two good hosts":       {},
		"unreadable":           {h1: func(s string) string { return s[:400] }, want: []string{"host-unreadable@h1"}},
		"another machine":      {h1: func(s string) string { return strings.Replace(s, "x86_64", "aarch64", 1) }, want: []string{"host-architecture@h1"}},
		"another system":       {h2: func(s string) string { return strings.Replace(s, "Linux\n", "Plan9\n", 1) }, want: []string{"host-architecture@h2"}},
		"a full disk":          {h1: func(s string) string { return strings.Replace(s, "1421287108", "1048575", 1) }, want: []string{"disk-space@h1"}},
		"just enough disk":     {h1: func(s string) string { return strings.Replace(s, "1421287108", "1048576", 1) }},
		"an unknown disk":      {h1: func(s string) string { return strings.Replace(s, "23%", "23", 1) }, want: []string{"disk-space@h1"}},
		"no rights":            {h1: func(s string) string { return strings.Replace(s, "writable", "read-only", 1) }, want: []string{"root-not-writable@h1"}},
		"a clock ahead":        {h1: func(s string) string { return strings.Replace(s, "1764442262.12", "1764442263.12", 1) }, want: []string{"clock-offset@h1"}},
		"a clock behind":       {h1: func(s string) string { return strings.Replace(s, "1764442262.12", "1764442261.12", 1) }, want: []string{"clock-offset@h1"}},
		"a clock at the epoch": {h1: func(s string) string { return strings.Replace(s, "1764442262.12", "0.12", 1) }, want: []string{"clock-offset@h1"}},
		"a clock far ahead":    {h1: func(s string) string { return strings.Replace(s, "1764442262.12", "1000000000000.12", 1) }, want: []string{"clock-offset@h1"}},
		"a clock within":       {h1: func(s string) string { return strings.Replace(s, "1764442262.12", "1764442261.72", 1) }},
		"no limit on clocks": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Policy.MaxClockOffset = 0 },
			h1:    func(s string) string { return strings.Replace(s, "1764442262.12", "0.12", 1) },
		},
		"no fabric interface": {h2: func(s string) string { return strings.Replace(s, "eth1 9000 up\n", "", 1) }, want: []string{"fabric-interface@h2"}},
		"any interface": {
			fleet: func(f *fleet.Fleet) { f.Deploy.Fabric.Interface = "" },
			h2:    func(s string) string { return strings.Replace(s, "eth1 9000 up\n", "", 1) },
		},
		"a file on both": {
			fleet: func(f *fleet.Fleet) { named(f, "h1", "h2") },
			h1:    func(s string) string { return withFile(s, sum) }, h2: func(s string) string { return withFile(s, sum) },
		},
		"two kinds of a file": {
			fleet: func(f *fleet.Fleet) { named(f, "h1", "h2") },
			h1:    func(s string) string { return withFile(s, sum) }, h2: func(s string) string { return withFile(s, strings.Repeat("b", 64)) },
			want: []string{"replica-differs@h2"},
		},
		"an absent file": {
			fleet: func(f *fleet.Fleet) { named(f, "h1") },
			h1:    func(s string) string { return strings.Replace(s, "== files\n", "== files\nabsent "+file+"\n", 1) },
			want:  []string{"file-absent@h1"},
		},
		"a file that could not be hashed": {
			fleet: func(f *fleet.Fleet) { named(f, "h1") },
			h1:    func(s string) string { return withFile(s, "-") },
			want:  []string{"file-absent@h1"},
		},
		"a file that the answer leaves out": {
			fleet: func(f *fleet.Fleet) { named(f, "h1") },
			want:  []string{"file-absent@h1"},
		},
		"files that nobody named": {
			h1: func(s string) string { return withFile(s, sum) }, h2: func(s string) string { return withFile(s, strings.Repeat("b", 64)) },
		},
	} {
		f := testFleet()
		if c.fleet != nil {
			c.fleet(&f)
		}
		answers := map[record.Key][]byte{}
		for h, change := range map[string]func(string) string{"h1": c.h1, "h2": c.h2} {
			b := string(answer(t, "debian"))
			if change != nil {
				if b = change(b); b == string(answer(t, "debian")) {
					t.Fatalf("%s: nothing was changed", name)
				}
			}
			answers[hostKey(h)] = []byte(b)
		}
		got := Gate{}.Judge(view(t, f, answers))
		if !slices.Equal(found(got), c.want) {
			t.Errorf("%s: found %v, want %v", name, found(got), c.want)
		}
		for _, x := range got {
			if x.Message == "" || x.Evidence != string(hostKey(x.Host)) || x.Hint == "" {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
	}
}

func TestJudgeOfMissingEvidence(t *testing.T) {
	v := view(t, testFleet(), map[record.Key][]byte{hostKey("h1"): answer(t, "debian")})
	if got := (Gate{}).Judge(v); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	state, missing := gates.Verdict(Gate{}, v, nil)
	if state != record.VerdictInconclusive || len(missing) != 1 || missing[0].Evidence != string(hostKey("h2")) {
		t.Errorf("verdict %s, %v", state, missing)
	}
}

func TestExpectLeavesJumpHostsOut(t *testing.T) {
	want := []record.Key{"A/inputs", "A/host/h1", "A/host/h2"}
	if got := (Gate{}).Expect(testFleet()); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestFacts(t *testing.T) {
	got := Gate{}.Facts(hostKey("h1"), answer(t, "alpine"))
	if got["host/h1/boot"] != "7d6b4f5c-2a8f-43b9-9a1e-1f9c2f1d0a77" || got["host/h1/files"] != "none" || len(got) != 2 {
		t.Errorf("facts %v", got)
	}
	if got := (Gate{}).Facts(hostKey("h1"), []byte("garbage")); got != nil {
		t.Errorf("facts of garbage: %v", got)
	}
	if got := (Gate{}).Facts(inputsKey, []byte("{}")); got != nil {
		t.Errorf("facts of the inputs: %v", got)
	}
}

// TestPlan asks each host with one command, and only for what is wanted.
func TestPlan(t *testing.T) {
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: testFleet(), Record: r, Progress: gates.Quiet{}}
	plan := func() gates.Plan {
		t.Helper()
		f, err := run.Forecast(t.Context(), gates.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return f.Gates[0].Plan
	}
	p := plan()
	if len(p.Steps) != 3 || p.Mutates() {
		t.Fatalf("plan %+v", p.Steps)
	}
	for _, s := range p.Steps[1:] {
		if s.Script == "" || s.Argv != nil || s.Limit <= 0 || s.Yields != hostKey(s.Host) {
			t.Errorf("step %+v", s)
		}
	}
	if p.Digest() != plan().Digest() {
		t.Error("the same inputs have two plans")
	}
}

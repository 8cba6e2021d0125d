package install

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Model:   "m",
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://192.0.2.12:8100"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}},
			Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h2"}}, Router: fleet.Router{Host: "h1"}, Release: fleet.Release{Keep: 3},
		},
	}
}

// view is what the judge sees of recorded evidence.
func view(t *testing.T, f fleet.Fleet, rel gates.Release, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, rel, time.Time{}, evidence)
}

func found(fs []record.Finding) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Code+"@"+f.Host)
	}
	return out
}

func TestJudge(t *testing.T) {
	f := testFleet()
	rel := gates.Release{SHA256: digest("e"), Arch: "linux/amd64", More: []gates.Binary{{SHA256: digest("f"), Arch: "linux/arm64"}}}
	good := func() map[record.Key]any {
		out := map[record.Key]any{manifestKey: Manifest{Binaries: rel.Binaries()}}
		for _, h := range []string{"h1", "h2"} {
			out[groundKey(h)], out[lockKey(h)] = []byte(goodGround), []byte("state taken\nwhy \nend\n")
			out[proofKey(h)] = []byte("digest sha256sum " + rel.SHA256 + "\nruns yes\nend\n")
			out[releaseKey(h)] = Switched{Self: rel.SHA256, Current: rel.SHA256, Previous: "none"}
			out[filesKey(h)] = RoleFiles{Role: roleOf(f, h), Digest: "d"}
			out[keyKey(h)] = Key{Public: "pem of " + h, SHA256: "s"}
		}
		return out
	}
	for name, c := range map[string]struct {
		change func(map[record.Key]any)
		want   []string
	}{
		"good":                {func(map[record.Key]any) {}, nil},
		"another binary":      {func(e map[record.Key]any) { e[releaseKey("h2")] = Switched{Self: digest("x"), Current: rel.SHA256} }, []string{"release-differs@h2"}},
		"another current":     {func(e map[record.Key]any) { e[releaseKey("h1")] = Switched{Self: rel.SHA256, Current: "none"} }, []string{"release-differs@h1"}},
		"the role of another": {func(e map[record.Key]any) { e[filesKey("h2")] = RoleFiles{Role: roleOf(f, "h1")} }, []string{"role-differs@h2"}},
		"the role of old times": {func(e map[record.Key]any) {
			r := roleOf(f, "h2")
			r.Model = "old"
			e[filesKey("h2")] = RoleFiles{Role: r}
		}, []string{"role-differs@h2"}},
		"another fleet's role": {func(e map[record.Key]any) {
			r := roleOf(f, "h2")
			r.Fleet = "x"
			e[filesKey("h2")] = RoleFiles{Role: r}
		}, []string{"role-differs@h2"}},
		"no key":  {func(e map[record.Key]any) { e[keyKey("h1")] = Key{} }, []string{"sidecar-key-missing@h1"}},
		"one key": {func(e map[record.Key]any) { e[keyKey("h2")] = e[keyKey("h1")] }, []string{"sidecar-key-shared@h2"}},
		"the binary of another machine": {func(e map[record.Key]any) {
			e[groundKey("h2")] = []byte(strings.ReplaceAll(strings.ReplaceAll(goodGround, "linux/amd64", "linux/arm64"), "x86_64", "aarch64"))
		}, []string{"release-digest@h2", "release-differs@h2"}},
		"no program":  {func(e map[record.Key]any) { e[manifestKey] = Manifest{Binaries: []gates.Binary{{SHA256: digest("e")}}} }, []string{"release-architecture@"}},
		"no manifest": {func(e map[record.Key]any) { e[manifestKey] = []byte("[]") }, []string{"release-architecture@"}},
		"a root that all write": {func(e map[record.Key]any) {
			e[groundKey("h1")] = []byte(strings.Replace(goodGround, "1000 1000 755 /opt/n", "1000 1000 777 /opt/n", 1))
		}, []string{"root-writable-by-others@h1"}},
		"a lock of another": {func(e map[record.Key]any) { e[lockKey("h1")] = []byte("state held\nwhy \nrun r2\nend\n") }, []string{"install-locked@h1"}},
		"a digest that differs": {func(e map[record.Key]any) {
			e[proofKey("h1")] = []byte("digest openssl " + digest("a") + "\nruns no\nend\n")
		}, []string{"release-digest@h1"}},
		"missing evidence": {func(e map[record.Key]any) { clear(e) }, nil}, // the runner's to report
	} {
		e := good()
		c.change(e)
		v := view(t, f, rel, e)
		got := Gate{}.Judge(v)
		if !slices.Equal(found(got), c.want) {
			t.Errorf("%s: found %v, want %v", name, found(got), c.want)
		}
		for _, x := range got {
			if x.Message == "" || x.Hint == "" || x.Evidence == "" {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
		state, _ := gates.Verdict(Gate{}, v, nil)
		if passed := state == record.VerdictPassed; passed != (name == "good") {
			t.Errorf("%s: verdict %s", name, state)
		}
	}
}

func TestFacts(t *testing.T) {
	for k, c := range map[record.Key]struct {
		body string
		want map[string]string
	}{
		manifestKey:      {`{}`, nil},
		groundKey("h1"):  {goodGround, nil},
		releaseKey("h1"): {`{"current":"c"}`, map[string]string{"host/h1/release": "c"}},
		filesKey("h1"):   {`{"digest":"d"}`, map[string]string{"host/h1/files-dir": "d"}},
		keyKey("h1"):     {`{"sha256":"s"}`, map[string]string{"host/h1/key": "s"}},
		"B/other/h1":     {`{}`, nil},
	} {
		if got := (Gate{}).Facts(k, []byte(c.body)); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", k, got, c.want)
		}
		if got := (Gate{}).Facts(k, []byte("garbage")); got != nil {
			t.Errorf("%s: facts of garbage %v", k, got)
		}
	}
}

// TestPlan proves the digest on the host before anything points to the release.
func TestPlan(t *testing.T) {
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rel := gates.Release{SHA256: digest("5"), Bytes: 7, Arch: "linux/amd64"}
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: testFleet(), Record: r, Progress: gates.Quiet{}, Release: rel}
	forecast, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]gates.Step{}
	for _, s := range forecast.Gates[0].Plan.Steps {
		at[s.ID] = s
	}
	if len(at) != 21 {
		t.Fatalf("%d steps", len(at))
	}
	send, sw := at["B/send/h1"], at["B/switch/h1"]
	if send.File == nil || !send.File.Release || send.File.SHA256 != rel.SHA256 || !strings.Contains(send.File.Path, rel.SHA256) || send.File.Mode != 0o644 || !send.File.KeepMode {
		t.Errorf("send %+v", send.File)
	}
	// The release's own binary switches, not the one that is current.
	for _, argv := range [][]string{sw.Argv, sw.Check, sw.Undo.Argv} {
		if argv[0] != send.File.Path {
			t.Errorf("asks %s", argv[0])
		}
	}
	// Nothing is sent before the host was looked at, nothing runs before it is proven.
	before := []string{"B/manifest"}
	for _, name := range []string{"ground", "lock", "send", "statement", "proof", "switch"} {
		id := "B/" + name + "/h1"
		if got := at[id].Needs; !slices.Equal(got, before) {
			t.Errorf("%s needs %v, want %v", id, got, before)
		}
		before = append(before, id)
	}
	if unlock := at["B/unlock/h1"]; !unlock.Last {
		t.Error("the lock is not given back at the end")
	}
	if !slices.Equal(at["B/role/h1"].Needs, []string{"B/switch/h1"}) || !slices.Equal(at["B/files/h1"].Needs, []string{"B/role/h1"}) {
		t.Errorf("needs %v, %v, %v", sw.Needs, at["B/role/h1"].Needs, at["B/files/h1"].Needs)
	}
	var role Role
	if err := json.Unmarshal([]byte(at["B/role/h2"].File.Content), &role); err != nil || role.Host != "h2" || role.Router || !slices.Equal(role.Engines, []string{"d0"}) {
		t.Errorf("role %+v, %v", role, err)
	}
}

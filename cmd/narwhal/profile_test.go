package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// quickSweep takes about a second an engine.
var quickSweep = []string{"--prefill-lens", "256,1024,2000", "--decode-input-lens", "64,512", "--decode-concurrency", "1,6", "--decode-tokens", "8", "--sweep-budget", "1ms"}

// profiled runs narwhal profile, which must end with the code.
func (p *plainFleet) profiled(code int, args ...string) (profileData, string) {
	p.t.Helper()
	r := finish(p.t, p.verb(append([]string{"profile", "-f", p.fleet, "--format", "json"}, args...)...))
	var e struct {
		Data   profileData
		Errors []struct{ Code, Hint string }
	}
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || r.code != code {
		p.t.Fatalf("profile %v: exit %d, want %d, %v\n%s\n%s", args, r.code, code, err, tail(r.out), r.err)
	}
	var codes []string
	for _, x := range e.Errors {
		codes = append(codes, x.Code)
		if x.Hint == "" {
			p.t.Errorf("profile %v: %s has no hint", args, x.Code)
		}
	}
	return e.Data, strings.Join(codes, " ")
}

func (p *plainFleet) read(name string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *plainFleet) rowOf(name, iid string) profile.Row {
	p.t.Helper()
	s, err := profile.ReadStore(bytes.NewReader(p.read(name)))
	if err != nil {
		p.t.Fatal(err)
	}
	row, ok := s.Row(iid)
	if !ok {
		p.t.Fatalf("%s has no row of %s", name, iid)
	}
	return row
}

// TestProfile writes a store with which a router serves, and what was measured says the same again.
func TestProfile(t *testing.T) {
	p := running(t)
	d, _ := p.profiled(0, quickSweep...)
	if len(d.Engines) != 2 || d.Engines[0].Row == nil || d.Engines[1].Row == nil || d.Engines[0].Prefill < 9 || d.Engines[0].Decode < 12 || len(d.Missing) != 0 {
		t.Fatalf("%+v", d)
	}
	if c := p.rowOf("profiles.json", "p0").Curve(); c.Prefill(2000) < 0.09 || c.Prefill(2000) > 1 || c.MaxRequests != 6 || c.KVCapacity == 0 {
		t.Errorf("the engine needs 0.104 s for 2000 tokens: %+v", c)
	}
	if r := finish(t, p.command("--check")); r.code != 0 {
		t.Errorf("serve --check: exit %d\n%s", r.code, r.err)
	}
	p.serve() // the router finds the live processes to be those that were measured
	if got, codes := p.checked(0, "--pairs", "none"); codes != "" || !strings.Contains(got.Checks[2].Says, "of this process, with ") {
		t.Errorf("%s, %+v", codes, got.Checks)
	}

	p.profiled(0, "--refit", "profiles.samples.json", "--out", "refit.json")
	p.profiled(0, "--merge", "refit.json", "profiles.json", "--out", "merged.json")
	for _, name := range []string{"refit", "merged"} {
		if !bytes.Equal(p.read(name+".json"), p.read("profiles.json")) || !bytes.Equal(p.read(name+".samples.json"), p.read("profiles.samples.json")) {
			t.Errorf("%s differs from what was measured", name)
		}
	}

	d, _ = p.profiled(0, append(slices.Clone(quickSweep), "--only", "d0", "--overwrite")...)
	if p0 := p.rowOf("profiles.json", "p0"); len(d.Engines) != 1 || !slices.Equal(d.Kept, []string{"p0"}) || p0.Curve() != p.rowOf("refit.json", "p0").Curve() {
		t.Errorf("only d0: %+v", d)
	}
	d, _ = p.profiled(0, "--merge", "refit.samples.json", "--merge", "profiles.json", "--out", "merged.json", "--overwrite")
	if n, m := d.Engines[0].Prefill, d.Engines[1].Prefill; n >= m || m < 18 {
		t.Errorf("points of p0, measured once, %d, of d0, measured twice, %d", n, m)
	}
	if p.rowOf("merged.json", "p0").Curve() != p.rowOf("refit.json", "p0").Curve() || p.rowOf("merged.json", "d0").Curve() == p.rowOf("refit.json", "d0").Curve() {
		t.Error("the merge changes the curve of p0, or leaves that of d0")
	}
}

// TestProfileOfPointsWithoutACurve gives no row, and says why; those of the others are written.
func TestProfileOfPointsWithoutACurve(t *testing.T) {
	p := running(t)
	s := preflight.NewSamples("tern-tiny", map[string]any{})
	good := profile.Samples{}
	for _, n := range []int{256, 512, 1024} {
		good.Prefill = append(good.Prefill, profile.PrefillSample{Tokens: n, Seconds: 0.01 + float64(n)*1e-4})
	}
	for _, r := range []int{1, 4} {
		for _, k := range []int{100, 1000} {
			good.Decode = append(good.Decode, profile.DecodeSample{Requests: r, KVTokens: r * k, Gap: 0.01 + 1e-3*float64(r) + 1e-6*float64(r*k)})
		}
	}
	bad := good
	bad.Prefill = slices.Clone(good.Prefill)
	bad.Prefill[1].Seconds = 3
	digest := "sha256:" + strings.Repeat("ab", 32)
	s.Engines["p0"] = preflight.Measured{Generation: digest, Points: preflight.Profiled{IID: "p0", Samples: good, Capacity: 30000}}
	s.Engines["d0"] = preflight.Measured{Generation: digest, Points: preflight.Profiled{IID: "d0", Samples: bad, Capacity: 30000}}
	b, err := s.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "points.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, codes := p.profiled(1, "--refit", "points.json")
	if codes != "profile-unfit" || !slices.Equal(d.Missing, []string{"d0"}) || d.Engines[1].Row != nil {
		t.Errorf("%s, %+v", codes, d)
	}
	p.rowOf("profiles.json", "p0")
	if r := finish(t, p.command("--check")); r.code != 2 || !strings.Contains(r.err, `"d0" has no profile`) {
		t.Errorf("serve --check: exit %d\n%s", r.code, r.err)
	}
}

// TestProfileOfABrokenEngine keeps what was measured of the other.
func TestProfileOfABrokenEngine(t *testing.T) {
	p := running(t)
	if err := p.engines[1].Inject(simulated.Injection{Kind: "busy", Count: -1}); err != nil {
		t.Fatal(err)
	}
	d, codes := p.profiled(4, quickSweep...)
	if codes != "profile_failed" || !slices.Equal(d.Missing, []string{"d0"}) {
		t.Errorf("%s, %+v", codes, d.Missing)
	}
	p.rowOf("profiles.json", "p0")
	r := finish(t, p.verb("profile", "-f", p.fleet, "--only", "d0", "--out", "other.json"))
	if r.code != 4 || !strings.Contains(r.err, "error: profile d0: ") || strings.Count(r.err, "profile d0: ") != 1 {
		t.Errorf("the engine is not named once: exit %d\n%s", r.code, r.err)
	}
	if err := p.engines[1].Inject(simulated.Injection{Kind: "clear"}); err != nil {
		t.Fatal(err)
	}
	if d, _ := p.profiled(0, append(slices.Clone(quickSweep), "--only", "d0", "--overwrite")...); len(d.Missing) != 0 || !slices.Equal(d.Kept, []string{"p0"}) {
		t.Errorf("%+v", d)
	}
}

func TestProfileRefusesFiles(t *testing.T) {
	p := running(t)
	at := func(name string) string { return filepath.Join(p.dir, name) }
	put := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("notes.json", "my notes")
	put("store.json", `{"schema":"narwhal.profiles","schema_version":1,"meta":{},"profiles":[]}`)
	for name, to := range map[string]string{"link.json": "store.json", "dangling.json": "nowhere.json", "side.samples.json": "store.json", "fleetlink.json": "fleet.json"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := p.read("fleet.json")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"is a symbolic link", []string{"--out", "link.json", "--overwrite"}},
		{"is a symbolic link", []string{"--out", "dangling.json", "--overwrite"}},
		{"is a symbolic link", []string{"--out", "side.json", "--overwrite"}},
		{"one file", []string{"--out", "fleet.json", "--overwrite"}},
		{"one file", []string{"--out", "fleetlink.json", "--overwrite"}},
		{"no regular file", []string{"--out", "folder", "--overwrite"}},
		{"store.json exists", []string{"--out", "store.json"}},
		{"notes.json exists", []string{"--out", "notes.json"}},
		{"nothing of it was changed", []string{"--out", "notes.json", "--overwrite"}},
		{"--refit and --merge", []string{"--refit", "a", "--merge", "b"}},
		{"names one file", []string{"--merge", "a"}},
		{"no engine is measured", []string{"--refit", "a", "--decode-tokens", "8"}},
		{"3 different values", []string{"--prefill-lens", "256,256,512"}},
		{"from 1 to", []string{"--decode-concurrency", "0,4"}},
		{"--decode-tokens takes 3", []string{"--decode-tokens", "2"}},
		{"its engines are p0, d0", []string{"--only", "x"}},
		{"read the points of --refit", []string{"--refit", "store.json"}},
		{"read absent.json", []string{"--merge", "store.json", "absent.json"}},
		{`takes no "p0"`, []string{"p0"}},
	} {
		if r := finish(t, p.verb(append([]string{"profile", "-f", p.fleet}, c.args...)...)); r.code != 2 || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "hint:") {
			t.Errorf("%v: exit %d\n%s", c.args, r.code, r.err)
		}
	}
	if !bytes.Equal(before, p.read("fleet.json")) || string(p.read("notes.json")) != "my notes" {
		t.Error("a file was changed")
	}
}

// TestProfileInterrupted leaves the folder as it was.
func TestProfileInterrupted(t *testing.T) {
	p := running(t, func(c *simulated.Config) { c.DecodeD = 0.1 })
	before := filesBelow(t, p.dir)
	cmd := p.verb("profile", "-f", p.fleet, "--sweep-budget", "10m")
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	await(t, "the sweep", func() bool { return p.engines[0].State().Load.Running > 0 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("exit %d\n%s", got, errs.String())
	}
	before = append(before, filepath.Join(p.dir, "profiles.json.lock"))
	if after := filesBelow(t, p.dir); !slices.Equal(before, after) {
		t.Errorf("files %v, before %v", after, before)
	}
}

// TestProfileOfAStoreThatOthersWrite writes over nothing that came meanwhile, and two profiles do not
// write one store.
func TestProfileOfAStoreThatOthersWrite(t *testing.T) {
	p := running(t)
	cmd := p.verb(append([]string{"profile", "-f", p.fleet, "--only", "p0", "--out", "new.json", "--format", "json"}, quickSweep...)...)
	done := make(chan ran, 1)
	go func() { done <- finish(t, cmd) }()
	await(t, "the store to be held", func() bool { return exists(filepath.Join(p.dir, "new.json.lock")) })
	if _, codes := p.profiled(5, "--only", "d0", "--out", "new.json"); codes != "store_held" {
		t.Errorf("beside another: %s", codes)
	}
	other := []byte(`{"mine":1}`)
	if err := os.WriteFile(filepath.Join(p.dir, "new.json"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.code != 6 || !strings.Contains(r.out, `"store_changed"`) || !bytes.Equal(p.read("new.json"), other) {
		t.Errorf("exit %d\n%s\n%s", r.code, r.out, p.read("new.json"))
	}
}

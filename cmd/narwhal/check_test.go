package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/schema"
)

// running are engines in this process, and the plain document of their fleet.
func running(t *testing.T, change ...func(*simulated.Config)) *plainFleet {
	t.Helper()
	p := plainFolder(t)
	cfg := simulated.Config{Model: "tern-tiny", SideChannel: "127.0.0.1:0", Simulated: fleet.Simulated{PrefillA: 0.004, PrefillB: 5e-5, DecodeD: 0.004, DecodeE: 5e-4, BlockSize: 16, Blocks: 2049, MaxModelLen: 2100, MaxNumSeqs: 64, MaxBatched: 8192, LeaseS: 20}}
	var engines []any
	for i, name := range []string{"p0", "d0"} {
		var one func(*simulated.Config)
		if i < len(change) {
			one = change[i]
		}
		s := simulatedtest.Start(t, cfg, one)
		p.engines = append(p.engines, s)
		engines = append(engines, map[string]any{"iid": name, "url": s.URL(), "role": []string{"prefill", "decode"}[i]})
	}
	b, err := json.Marshal(map[string]any{"schema": "narwhal.fleet", "schema_version": 2, "model": "tern-tiny", "slo": map[string]any{"ttft_s": 5.0, "tpot_s": 1.0}, "engines": engines,
		"profiles": map[string]any{"path": filepath.Join(p.dir, "profiles.json"), "max_decode_fit_mape": 0.9, "max_decode_cv_mape": 3}, "controller": map[string]any{"reactive": map[string]any{"movement_margin": 0.9}}})
	if err == nil {
		err = os.WriteFile(p.fleet, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plainFleet) verb(args ...string) *exec.Cmd {
	return execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), args...)
}

// checked is the answer of narwhal check, which must end with the code.
func (p *plainFleet) checked(code int, args ...string) (preflight.Checked, string) {
	p.t.Helper()
	return p.checkedWith(nil, code, args...)
}

func (p *plainFleet) checkedWith(env []string, code int, args ...string) (preflight.Checked, string) {
	p.t.Helper()
	cmd := p.verb(append([]string{"check", "-f", p.fleet, "--format", "json"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	r := finish(p.t, cmd)
	var e struct {
		Data   preflight.Checked `json:"data"`
		Errors []struct{ Code, Hint string }
	}
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || r.code != code {
		p.t.Fatalf("check %v: exit %d, want %d, %v\n%s\n%s", args, r.code, code, err, tail(r.out), r.err)
	}
	var codes []string
	for _, x := range e.Errors {
		codes = append(codes, x.Code)
		if x.Hint == "" || strings.Contains(x.Hint, "gate run --again F") {
			p.t.Errorf("check %v: hint %q of %s", args, x.Hint, x.Code)
		}
	}
	return e.Data, strings.Join(codes, " ")
}

// stored writes a store that is bound to the live engines, with a slow curve.
func (p *plainFleet) stored() {
	p.t.Helper()
	var rows []profile.Row
	got, _ := p.checked(3, "--pairs", "none")
	for _, e := range got.Engines {
		rows = append(rows, profile.NewRow(e.IID, e.Generation, profile.Curve{C: 1, RequestSlope: 1e-5, Intercept: 0.002, MinRequests: 1, MaxRequests: 64, MinKVTokens: 1, MaxKVTokens: 30000}, profile.Report{}))
	}
	b, err := profile.NewStore(nil, rows...).Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "profiles.json"), b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func TestCheckOfAHealthyFleet(t *testing.T) {
	p := running(t)
	p.stored()
	got, codes := p.checked(0, "--pairs", "mesh", "--drills", "--repeats", "2")
	if codes != "" || len(got.Pairs) != 2 || len(got.Failed)+len(got.Skipped) != 0 || got.Pairs[0].Repeats != 2 || got.Calibration == nil || got.Calibration.Samples != 2*2*3 || len(got.Checks) != 2+2+1+2+2 {
		t.Errorf("checks %+v, calibration %+v", got.Checks, got.Calibration)
	}
	for _, h := range got.Pairs {
		if len(h.Split) == 0 || fmt.Sprint(h.Split) != fmt.Sprint(h.Unsplit) || h.Moved < float64(h.Prompt)/2 || h.Long == nil {
			t.Errorf("handoff %+v", h.Handed)
		}
	}
	if got, _ := p.checked(0, "--pairs", "none"); len(got.Pairs) != 0 {
		t.Errorf("pairs %+v", got.Pairs)
	}
	if got, _ := p.checked(0, "--only", "p0"); len(got.Checks) != 1+1+1+2 || len(got.Pairs) != 2 {
		t.Errorf("only p0: %+v", got.Checks)
	}
	r := finish(t, p.verb("check", "-f", p.fleet, "--pairs", "ring"))
	if r.code != 0 || strings.Count(r.out, "passed ") != 7 || !strings.Contains(r.out, "handoff p0 → d0: 512 tokens") || !strings.HasSuffix(r.out, "7 checks: 7 passed, 0 failed, 0 skipped\n") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	p := running(t)
	p.checked(3, "--pairs", "none") // no store
	p.stored()
	inject := func(i int, kind string, count int) {
		t.Helper()
		if err := p.engines[i].Inject(simulated.Injection{Kind: kind, Count: count}); err != nil {
			t.Fatal(err)
		}
	}
	inject(1, "wrong-block", -1)
	if got, codes := p.checked(1); codes != "handoff-output long-handoff-output" || len(got.Pairs) != 2 {
		t.Errorf("wrong blocks: %s", codes)
	}
	inject(1, "clear", 0)
	inject(1, "busy", -1)
	if _, codes := p.checked(1, "--only", "d0"); !strings.Contains(codes, "pace-unknown") {
		t.Errorf("an engine that answers 503: %s", codes)
	}
	inject(1, "clear", 0)
	other := "sha256:" + strings.Repeat("0", 64)
	p.editProfiles(func(rows []profile.Row) { rows[0].GenerationDigest = &other; rows[1].IID = "x1" })
	if _, codes := p.checked(1, "--pairs", "none"); !strings.Contains(codes, "profile-stale") || !strings.Contains(codes, "profile-missing") || !strings.Contains(codes, "profile-extra") {
		t.Errorf("another store: %s", codes)
	}
	p.engines[1].Stop()
	if got, codes := p.checked(1, "--profiles", p.profilesOf("p0")); !strings.HasPrefix(codes, "engine-unreachable") || len(got.Pairs) != 0 || len(got.Skipped) < 2 {
		t.Errorf("a dead engine: %s, %+v", codes, got.Skipped)
	}
	p.engines[0].Stop()
	if _, codes := p.checked(4); !strings.HasPrefix(codes, "engine-unreachable engine-unreachable") {
		t.Errorf("a dead fleet: %s", codes)
	}
}

func TestCheckOfUnequalEngines(t *testing.T) {
	p := running(t, nil, func(c *simulated.Config) { c.BlockSize = 64 })
	got, codes := p.checked(1)
	if codes != "block-size-differs" || len(got.Pairs) != 0 {
		t.Errorf("%s, pairs %+v", codes, got.Pairs)
	}
}

func TestCheckWithAKey(t *testing.T) {
	locked := func(c *simulated.Config) { c.APIKey = fleet.NewSecret("k-51c2f0aa") }
	p := running(t, locked, locked)
	p.edit(func(doc map[string]any) { doc["engine"] = map[string]any{"engine_api_key_env": "FLEET_KEY"} })
	if _, codes := p.checked(2); codes != "secret_unset" {
		t.Errorf("without: %s", codes)
	}
	if _, codes := p.checkedWith([]string{"FLEET_KEY=other"}, 1); !strings.Contains(codes, "model-missing") {
		t.Errorf("another key: %s", codes)
	}
	if got, codes := p.checkedWith([]string{"FLEET_KEY=k-51c2f0aa"}, 3); codes != "checks_skipped" || len(got.Pairs) != 2 {
		t.Errorf("with: %s", codes)
	}
}

// TestCheckLeavesBusyEnginesAlone while a client streams from one of them.
func TestCheckLeavesBusyEnginesAlone(t *testing.T) {
	p := running(t, nil, func(c *simulated.Config) { c.DecodeD = 0.05 })
	p.stored()
	resp, err := http.Post(p.engines[1].URL()+"/v1/completions", "application/json", strings.NewReader(`{"model":"tern-tiny","prompt":"a whale","max_tokens":2000,"ignore_eos":true,"stream":true}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("stream: %v %v", resp, err)
	}
	defer resp.Body.Close()
	got, codes := p.checked(3)
	if codes != "checks_skipped" || len(got.Pairs) != 0 || len(got.Skipped) != 1+2 || got.Engines[1].Load.Running != 1 || len(got.Engines[1].Pace) != 0 || len(got.Engines[0].Pace) == 0 {
		t.Errorf("%s, skipped %+v", codes, got.Skipped)
	}
	if r := finish(t, p.verb("profile", "-f", p.fleet, "--overwrite")); r.code != 6 || !strings.Contains(r.err, "d0 has 1 requests running") {
		t.Errorf("profile: exit %d\n%s", r.code, r.err)
	}
	got, _ = p.checked(0, "--yes")
	if len(got.Pairs) != 2 || len(got.Warnings) == 0 || got.Warnings[0].Code != "engine-busy" && got.Warnings[len(got.Warnings)-1].Code != "engine-busy" {
		t.Errorf("with --yes: %+v", got.Warnings)
	}
}

func TestCheckArguments(t *testing.T) {
	p := running(t)
	for says, args := range map[string][]string{"--pairs": {"--pairs", "star"}, "its engines are p0, d0": {"--only", "x"}, "--repeats": {"--repeats", "0"}, "--profiles": {"--profiles", "absent.json"}} {
		if r := finish(t, p.verb(append([]string{"check", "-f", p.fleet}, args...)...)); r.code != 2 || !strings.Contains(r.err[strings.LastIndex(r.err, "hint:")+1:], says) {
			t.Errorf("%v: exit %d\n%s", args, r.code, r.err)
		}
	}
}

// profilesOf is a copy of the store with the row of one engine.
func (p *plainFleet) profilesOf(iid string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "profiles.json"))
	var s profile.Store
	if err == nil {
		s, err = profile.ReadStore(bytes.NewReader(b))
	}
	path := filepath.Join(p.dir, "of-"+iid+".json")
	if row, ok := s.Row(iid); ok {
		s.Rows = []profile.Row{row}
	}
	if err == nil {
		b, err = s.Encode()
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

// TestDefaultPointsAreThoseOfTheSchema: a fleet without a deploy section is measured as one with it.
func TestDefaultPointsAreThoseOfTheSchema(t *testing.T) {
	doc, err := schema.Load(t.Context(), []schema.Source{{Name: "f.json", Data: []byte(`{"schema":"narwhal.fleet","schema_version":2,"model":"m","slo":{"ttft_s":2,"tpot_s":0.1},
		"engines":[{"iid":"a","url":"http://192.0.2.1:8100","attestation_url":"http://192.0.2.1:8110/v1/attestation","role":"prefill"},{"iid":"b","url":"http://192.0.2.2:8100","attestation_url":"http://192.0.2.2:8110/v1/attestation"}],
		"deploy":{"name":"x","hosts":{"h1":{"address":"192.0.2.1","host_keys":["SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]},"h2":{"address":"192.0.2.2","host_keys":["SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]}},"router":{"host":"h1"},
		"defaults":{"launch":"l"},"launch":{"l":{"kind":"simulated","model_dir":"/m"}},"engines":{"a":{"host":"h1"},"b":{"host":"h2"}}}}`)}}, schema.Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if got, want := fmt.Sprint(preflight.DefaultPoints), fmt.Sprint(doc.Fleet.Deploy.Profile); got != want {
		t.Errorf("%s, the schema says %s", got, want)
	}
}

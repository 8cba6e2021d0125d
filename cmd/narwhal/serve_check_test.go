package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// editProfiles rewrites the profile store of a plain fleet, unchecked.
func (p *plainFleet) editProfiles(change func(rows []profile.Row)) {
	p.t.Helper()
	path := filepath.Join(p.dir, "profiles.json")
	var s profile.Store
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	change(s.Rows)
	if b, err = json.Marshal(s); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// --check does not promise what only the engines know, and the hint of a start that they
// refuse leads on, not back to it.
func TestCheckAsksNoEngine(t *testing.T) {
	p := newPlainFleet(t)
	other := "sha256:" + strings.Repeat("0", 64)
	p.editProfiles(func(rows []profile.Row) { rows[0].GenerationDigest = &other })
	if r := finish(t, p.command("--check")); r.code != 0 || !strings.Contains(r.out, "engines are not asked") {
		t.Errorf("check: exit %d\n%s%s", r.code, r.out, r.err)
	}
	r := finish(t, p.command("--listen", "127.0.0.1:0"))
	if r.code != 4 || strings.Contains(r.err, "serve --check") || !strings.Contains(r.err, "gate run --to F") || !strings.Contains(r.err, `"cause":"profile_generation"`) || strings.Contains(r.err, `"cause":"connection"`) {
		t.Errorf("serve: exit %d\n%s", r.code, r.err)
	}
}

// One engine under two names would get twice its load.
func TestOneAddressOneEngine(t *testing.T) {
	p := newPlainFleet(t)
	var url string
	p.edit(func(doc map[string]any) {
		list := doc["engines"].([]any)
		url = list[0].(map[string]any)["url"].(string)
		list[1].(map[string]any)["url"] = strings.Replace(url, "http", "HTTP", 1) + "/"
	})
	for _, args := range [][]string{{"--check"}, {"--listen", "127.0.0.1:0"}} {
		if r := finish(t, p.command(args...)); r.code != 2 || !strings.Contains(r.err, `"p0" and "d0"`) || !strings.Contains(r.err, "engine-url-unique") {
			t.Errorf("%v: exit %d\n%s", args, r.code, r.err)
		}
	}
}

func TestCheckBoundsProfiles(t *testing.T) {
	p := newPlainFleet(t)
	for name, change := range map[string]func(r *profile.Row){
		"tpot_intercept":  func(r *profile.Row) { r.TPOTIntercept = 1e308 },
		"ttft_b":          func(r *profile.Row) { r.TTFTB = 1e5 },
		"decode requests": func(r *profile.Row) { r.DecodeMaxRequests = 1 << 40 },
	} {
		p := newPlainFleet(t)
		p.editProfiles(func(rows []profile.Row) { change(&rows[0]) })
		if r := finish(t, p.command("--check")); r.code != 2 || !strings.Contains(r.err, name) {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.err)
		}
	}
	if r := finish(t, p.command("--check")); r.code != 0 {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
}

// Hints name the file and what is wrong with it, not another one.
func TestHintsOfSecretsAndTenants(t *testing.T) {
	p := newPlainFleet(t)
	at := filepath.Join(p.dir, "tenants.json")
	if err := os.WriteFile(at, []byte(`{"schema": "narwhal.tenants", "schema_version": 1, "tenants": [{"name": "a", "wait": 3}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := finish(t, p.command("--check", "--tenants", at))
	hint := r.err[strings.LastIndex(r.err, "hint:")+1:]
	if r.code != 2 || !strings.Contains(r.err, "tenants[0]") || strings.Contains(hint, "validate FILE") || !strings.Contains(hint, at) {
		t.Errorf("tenants: exit %d\n%s", r.code, r.err)
	}
	for name, c := range map[string]struct {
		env  []string
		says string
	}{"unset": {nil, "TOKEN is not set"}, "empty": {[]string{"TOKEN="}, "TOKEN is empty"}, "short": {[]string{"TOKEN=abc"}, "16 to 512"}} {
		cmd := p.command("--check", "--control-token", "env:TOKEN")
		cmd.Env = append(cmd.Env, c.env...)
		r := finish(t, cmd)
		hint := r.err[strings.LastIndex(r.err, "hint:")+1:]
		if r.code != 2 || !strings.Contains(r.err, c.says) || !strings.Contains(hint, "--control-token") {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.err)
		}
	}
}

func TestSimulatedParamsAreKnown(t *testing.T) {
	p := newPlainFleet(t)
	for params, says := range map[string]string{`{"bogus":1}`: "bogus", `{} {}`: "after"} {
		r := finish(t, execCommand("/usr/bin/timeout", p.dir, p.dir, "5", p.bin, "engine", "simulated", "--listen", "127.0.0.1:0", "--params", params))
		if r.code != 2 || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit %d\n%s", params, r.code, r.err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// enginesRun runs a verb of engines in this process.
func enginesRun(t *testing.T, args ...string) ran {
	t.Helper()
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, dir: t.TempDir()}
	code, errs := ended(t, t.Context(), a, append([]string{"engines"}, args...)...)
	return ran{code, out.String(), errs}
}

// listed is what engines list says in JSON.
func listed(t *testing.T, url string) (l engineList) {
	t.Helper()
	r := enginesRun(t, "list", "--url", url, "--format", "json")
	doc := struct{ Data *engineList }{&l}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != 0 {
		t.Fatalf("exit %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	return l
}

func TestEnginesThroughARouter(t *testing.T) {
	p := newPlainFleet(t)
	_, addr := p.serve()
	url := "http://" + addr
	l := listed(t, url)
	if len(l.Engines) != 2 || !l.Router.Controls || !l.Router.Ready {
		t.Fatalf("%+v", l)
	}
	for i, want := range []engineLine{{IID: "d0", Role: "decode", Live: true, Accepts: true, State: "active"}, {IID: "p0", Role: "prefill", Live: true, Accepts: true, State: "active"}} {
		got := l.Engines[i]
		if got.Start == nil || got.IID != want.IID || got.Role != want.Role || !got.Live || !got.Accepts || got.State != want.State || got.Reason != "" || got.Ready {
			t.Errorf("%+v", got)
		}
	}
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"list", 0, []string{"ENGINE", "p0", "prefill", "active"}},
		{"drain", 2, []string{"needs an engine's id", "narwhal engines list"}},
		{"drain p0 d0", 2, []string{"takes one engine; 2 are given"}},
		{"drain p0 --all", 2, []string{"both given"}},
		{"drain p0 --timeout 0s", 2, []string{"--timeout takes"}},
		{"drain p0 --deadline -1s", 2, []string{"--deadline takes"}},
		{"drain p0 --control-token secret", 2, []string{"read the control token", "env:NAME"}},
		{"drain x9", 2, []string{`no engine "x9"`, "hint: known: d0, p0"}},
		{"readmit x9", 2, []string{`no engine "x9"`}},
		{"readmit p0", 6, []string{"p0 is active, expected drained", "hint: "}},
		{"readmit p0 --wait", 6, []string{"p0 is active, expected drained"}},
		{"restart p0 --", 2, []string{"no command stands behind --"}},
		{"drain p0 --wait", 0, []string{"p0  drained; may be stopped"}},
		{"drain p0 --wait", 0, []string{"may be stopped"}},
		{"list", 0, []string{"drained", "yes", "taken out by an order"}},
		{"drain d0", 6, []string{"no other engine is live", "hint: "}},
		{"release p0", 0, []string{"p0  active"}},
		{"hold d0", 0, []string{"d0  drained"}},
		{"readmit d0 --wait", 0, []string{"d0  active"}},
		{"restart d0", 3, []string{"without an engine contract", "narwhal engines readmit d0"}},
		{"restart d0 -- false", 4, []string{"exit status 1", "it stays drained"}},
		{"restart d0 -- /nowhere/tool", 4, []string{"no such file", "it stays drained"}},
		{"restart d0 --timeout 200ms -- sleep 60", 4, []string{"did not end within 200ms"}},
		{"restart d0 -- true", 3, []string{"same process as before"}},
		{"hold --all", 0, []string{"the whole fleet is held; may be stopped: yes"}},
		{"list", 0, []string{"the whole fleet is held"}},
		{"drain p0", 6, []string{"held by wave"}},
		{"release p0", 6, []string{"readmit with wave"}},
		{"drain --all --wait", 0, []string{"may be stopped"}},
		{"release --all", 0, []string{"p0  active", "d0  active"}},
	} {
		args := strings.Fields(c.args)
		at := len(args)
		for i, s := range args {
			if s == "--" {
				at = i
			}
		}
		args = append(append(append([]string{}, args[:at]...), "--url", url), args[at:]...)
		r := enginesBefore(t, args)
		if r.code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.args, r.code, c.code, r.out, r.err)
		}
		for _, s := range c.says {
			if !strings.Contains(r.out+r.err, s) {
				t.Errorf("%s: %q is missing in\n%s%s", c.args, s, r.out, r.err)
			}
		}
	}
	for _, e := range listed(t, url).Engines {
		if !e.Accepts || e.Draining {
			t.Errorf("left behind: %+v", e)
		}
	}
}

// enginesBefore keeps the flags of the harness in front of --.
func enginesBefore(t *testing.T, args []string) ran {
	t.Helper()
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, dir: t.TempDir()}
	var errs bytes.Buffer
	a.err, a.getenv = &errs, func(string) string { return "" }
	a.environ = func() []string { return []string{"PATH=" + os.Getenv("PATH")} }
	code := run(t.Context(), append([]string{"engines"}, args...), a)
	return ran{code, out.String(), errs.String()}
}

// A drain waits for the requests of its engine, and a wait that is too short says so.
func TestEnginesDrainWaits(t *testing.T) {
	p := newPlainFleet(t)
	_, addr := p.serve()
	url := "http://" + addr
	done := make(chan error, 1)
	go func() {
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"whale","max_tokens":1500,"ignore_eos":true}`))
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	await(t, "the request to decode", func() bool { return listed(t, url).Engines[0].InFlight.Decode == 1 })
	r := enginesRun(t, "drain", "d0", "--url", url, "--wait", "--timeout", "30ms", "--format", "json")
	var doc struct {
		Data   orderResult
		Errors []struct{ Code, Engine string }
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != 4 || doc.Errors[0].Code != "not_in_time" || doc.Errors[0].Engine != "d0" {
		t.Errorf("exit %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	r = enginesRun(t, "drain", "d0", "--url", url, "--wait")
	if r.code != 0 || !strings.Contains(r.out, "d0  drained; may be stopped") || !strings.Contains(r.err, "d0 is draining, in flight: 0 prefill, 1 decode") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEnginesControlToken(t *testing.T) {
	p := newPlainFleet(t)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	right, wrong := file("right", strings.Repeat("ab", 16)), file("wrong", strings.Repeat("cd", 16))
	_, addr := p.serve("--control-token", right)
	url := "http://" + addr
	for _, c := range []struct {
		token string
		code  int
		says  string
	}{
		{"", 6, "hint: --control-token env:NAME or file:PATH names the token"},
		{wrong, 6, "hint: the token that was sent is not the router's"},
		{"env:NOT_THERE", 2, "NOT_THERE is not set"},
		{"file:/nowhere/token", 2, "read the control token"},
		{right, 0, "d0  drained"},
	} {
		r := enginesRun(t, "drain", "d0", "--wait", "--url", url, "--control-token", c.token)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.says) || strings.Contains(r.out+r.err, "abab") || strings.Contains(r.out+r.err, "cdcd") {
			t.Errorf("%s: exit %d\n%s%s", c.token, r.code, r.out, r.err)
		}
	}
	if l := listed(t, url); l.Engines[0].State != "drained" {
		t.Errorf("%+v", l.Engines[0])
	}
}

// A fleet file with deploy leads to its router through a tunnel, and names its token.
func TestEnginesThroughATunnel(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("ab", 16)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1, func(doc map[string]any) {
		doc["deploy"].(map[string]any)["router"].(map[string]any)["http"] = map[string]any{"control_token": "file:" + token}
	})
	if r := w.run("engines", "list", "-f", w.fleet); r.code != 4 || !strings.Contains(r.err, "list the engines: reach ") || !strings.Contains(r.err, "hint: narwhal gate status --live") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	_, addr := newPlainFleet(t).serve("--listen", fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[0].Ports.Router), "--control-token", "file:"+token)
	for _, c := range [][]string{{"list", "p0"}, {"drain", "p0  drained", "p0", "--wait"}, {"release", "p0  active", "p0"}} {
		r := w.run(append([]string{"engines", c[0], "-f", w.fleet}, c[2:]...)...)
		if r.code != 0 || !strings.Contains(r.out, c[1]) {
			t.Errorf("%s: exit %d: %s%s", c[0], r.code, r.out, r.err)
		}
	}
	// An address that is given wins; the token of the file counts.
	if r := w.run("engines", "hold", "p0", "-f", w.fleet, "--url", "http://"+addr, "--format", "json"); r.code != 0 || !strings.Contains(r.out, `"router": "http://`+addr) {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["router"].(map[string]any)["http"] = map[string]any{"control_token": "env:NW_CONTROL"}
	})
	if r := w.run("engines", "release", "p0", "-f", w.fleet); r.code != 2 || !strings.Contains(r.err, "NW_CONTROL is not set") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if r := w.run("engines", "list", "-f", w.fleet); r.code != 0 || !strings.Contains(r.out, "taken out by an order") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
}

func TestEnginesOfAStandby(t *testing.T) {
	p := newPlainFleet(t)
	lease := []string{"--lease-path", filepath.Join(p.dir, "lease.json")}
	_, first := p.serve(append(lease, "--router-id", "a")...)
	_, second := p.standby("b", first, lease...)
	if r := enginesRun(t, "drain", "d0", "--url", "http://"+second); r.code != 4 || !strings.Contains(r.err, "does not control the fleet") || !strings.Contains(r.err, "hint: give the order to the router that serves") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	if r := enginesRun(t, "list", "--url", "http://"+second); r.code != 0 || !strings.Contains(r.out, "this router does not control the fleet") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
}

// A drain that leaves nothing to serve with says so: the rule of the last engine knows no roles.
func TestEnginesDrainOfALastRole(t *testing.T) {
	p := newPlainFleet(t)
	p.edit(func(doc map[string]any) {
		for _, e := range doc["engines"].([]any) {
			e.(map[string]any)["pin"] = true
		}
	})
	_, addr := p.serve()
	url := "http://" + addr
	r := enginesRun(t, "drain", "d0", "--url", url)
	if r.code != 0 || !strings.Contains(r.out, "the router serves no request now") || !strings.Contains(r.out, "narwhal engines release") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"whale","max_tokens":5}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "no_schedulable_engines") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if resp, err = http.Get(url + "/ready"); err != nil {
		t.Fatal(err)
	}
	b, _ = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "no available engine may decode") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if r := enginesRun(t, "release", "d0", "--url", url); r.code != 0 || strings.Contains(r.out, "serves no request") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

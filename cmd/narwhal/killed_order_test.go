package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// launched starts a router of the fleet with files of its own name, and returns its address once its
// standard error has it.
func (p *plainFleet) launched(name string, says *regexp.Regexp, args ...string) (*exec.Cmd, string) {
	p.t.Helper()
	cmd := p.command(append([]string{"--listen", "127.0.0.1:0", "--journal", filepath.Join(p.dir, name+".jsonl"), "--state-path", filepath.Join(p.dir, name+".json")}, args...)...)
	if says == waitingOn {
		cmd.Args[1] = "standby"
	}
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at []string
	await(p.t, name+" to be up", func() bool { at = says.FindStringSubmatch(errs.String()); return at != nil })
	return cmd, at[1]
}

// drained is what a router says of an engine of the plain fleet.
func drained(t *testing.T, addr string) string {
	t.Helper()
	res, err := http.Get("http://" + addr + "/narwhal/lifecycle")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var d struct {
		Engines map[string]struct{ State string }
	}
	if err := json.NewDecoder(res.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Engines["d0"].State
}

// A router that is killed directly after it answered a drain leaves it to its next start, and to its
// standby.
func TestKilledAfterADrain(t *testing.T) {
	p := newPlainFleet(t)
	drain := func(victim *exec.Cmd, addr string) string {
		t.Helper()
		res, err := http.Post("http://"+addr+"/narwhal/lifecycle/drain", "application/json", strings.NewReader(`{"engines":["d0"]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(res.Body)
		_ = victim.Process.Kill()
		_ = res.Body.Close()
		_ = victim.Wait()
		if res.StatusCode != 200 {
			t.Fatalf("status %d", res.StatusCode)
		}
		return res.Header.Get("Narwhal-Order-Stored") + " " + res.Header.Get("Narwhal-Order-Replicated")
	}
	alone, at := p.launched("alone", servingOn)
	if s := drain(alone, at); s != "true false" {
		t.Errorf("stored, replicated: %s", s)
	}
	again, at := p.launched("alone", servingOn, "--resume")
	if got := drained(t, at); got != "drained" {
		t.Errorf("after --resume d0 is %s", got)
	}
	_ = again.Process.Kill()
	_ = again.Wait()

	lease := []string{"--lease-path", filepath.Join(p.dir, "lease")}
	primary, at := p.launched("a", servingOn, lease...)
	_, second := p.launched("b", waitingOn, append(lease, "--of", "http://"+at)...)
	await(t, "the standby to follow", func() bool {
		res, err := http.Get("http://" + second + "/narwhal/handoff")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.Header.Get("Narwhal-Handoff-Age") != ""
	})
	if s := drain(primary, at); s != "true true" {
		t.Errorf("stored, replicated: %s", s)
	}
	await(t, "the standby to take over", func() bool {
		res, err := http.Get("http://" + second + "/ready")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return strings.Contains(string(body), `"control_ready":true`)
	})
	if got := drained(t, second); got != "drained" {
		t.Errorf("after the takeover d0 is %s", got)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asked is the status of a completion, 0 when nobody answered.
func asked(addr string) (status int, body string) {
	resp, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"whale","max_tokens":3}`))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func stateOf(t *testing.T, addr string) (s struct {
	Served int
	HA     struct {
		Epoch int
		Ready bool
	} `json:"ha"`
}) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/narwhal/state")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// standby starts a router that waits for the one at an address, with files named after id.
func (p *plainFleet) standby(id, of string, args ...string) (*exec.Cmd, string) {
	p.t.Helper()
	cmd := execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), append([]string{"standby", "--of", "http://" + of, "-f", p.fleet, "--listen", "127.0.0.1:0",
		"--router-id", id, "--journal", filepath.Join(p.dir, id+".jsonl"), "--state-path", filepath.Join(p.dir, id+"-state.json")}, args...)...)
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at []string
	await(p.t, "the standby to wait", func() bool {
		at = waitingOn.FindStringSubmatch(errs.String())
		return at != nil
	})
	return cmd, at[1]
}

// ready is what a router says of itself.
func ready(t *testing.T, addr string) (status int, d struct {
	Epoch  int
	Reason string
}) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, d
}

// Handed over with SIGTERM and back, the routers serve in turn, with the counters of both.
func TestPlannedHandoverAndBack(t *testing.T) {
	p := newPlainFleet(t)
	lease := []string{"--lease-path", filepath.Join(p.dir, "lease.json")}
	handOver := func(from *exec.Cmd, fromAddr, to, toAddr string) {
		t.Helper()
		if status, body := asked(fromAddr); status != 200 {
			t.Fatalf("before %s: %d %s", to, status, body)
		}
		_, d := ready(t, fromAddr)
		epoch := d.Epoch
		await(t, to+" to follow", func() bool { _, d := ready(t, toAddr); return d.Reason == "shadowing" && handed(p, to, epoch) })
		_ = from.Process.Signal(syscall.SIGTERM)
		await(t, to+" to serve", func() bool { status, _ := ready(t, toAddr); return status == 200 })
		if err := from.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	a, first := p.serve(append(lease, "--router-id", "a", "--journal", filepath.Join(p.dir, "a.jsonl"), "--state-path", filepath.Join(p.dir, "a-state.json"))...)
	b, second := p.standby("b", first, lease...)
	handOver(a, first, "b", second)
	_, third := p.standby("a", second, lease...)
	handOver(b, second, "a", third)
	if _, d := ready(t, third); d.Epoch != 3 || stateOf(t, third).Served != 2 {
		t.Errorf("%+v, served %d", d, stateOf(t, third).Served)
	}
}

// handed reports whether a standby has a handoff of an epoch.
func handed(p *plainFleet, id string, epoch int) bool {
	b, err := bounded(filepath.Join(p.dir, id+"-state.json"), 1<<20)
	return err == nil && strings.Contains(string(b), fmt.Sprintf(`"epoch":%d,`, epoch))
}

// Killed with -9, a router is followed by its standby, with its counters and the next epoch.
func TestStandbyTakesOverAfterAKill(t *testing.T) {
	p := newPlainFleet(t)
	lease := filepath.Join(p.dir, "lease.json")
	first, addr := p.serve("--lease-path", lease, "--router-id", "a")
	_, second := p.standby("b", addr, "--lease-path", lease)
	for range 4 {
		if status, body := asked(addr); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := asked(second); status != 503 || !strings.Contains(body, `"standby"`) {
		t.Errorf("the standby answers %d %s", status, body)
	}
	followed := filepath.Join(p.dir, "b-state.json")
	await(t, "the standby to have the counters", func() bool {
		b, err := bounded(followed, 1<<20)
		return err == nil && strings.Contains(string(b), `"served":4`)
	})
	start := time.Now()
	_ = first.Process.Signal(syscall.SIGKILL)
	await(t, "the standby to serve", func() bool { status, _ := asked(second); return status == 200 })
	t.Logf("served again %s after the kill", time.Since(start))
	if s := stateOf(t, second); s.Served < 5 || s.HA.Epoch != 2 || !s.HA.Ready {
		t.Errorf("after the takeover: %+v", s)
	}
}

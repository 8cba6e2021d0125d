package main

import (
	"encoding/json"
	"io"
	"net/http"
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

// Killed with -9, a router is followed by its standby, with its counters and the next epoch.
func TestStandbyTakesOverAfterAKill(t *testing.T) {
	p := newPlainFleet(t)
	lease := filepath.Join(p.dir, "lease.json")
	first, addr := p.serve("--lease-path", lease, "--router-id", "a")
	cmd := execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), "standby", "--of", "http://"+addr, "-f", p.fleet, "--listen", "127.0.0.1:0",
		"--lease-path", lease, "--router-id", "b", "--journal", filepath.Join(p.dir, "b.jsonl"), "--state-path", filepath.Join(p.dir, "b-state.json"))
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at []string
	await(t, "the standby to wait", func() bool {
		at = waitingOn.FindStringSubmatch(errs.String())
		return at != nil
	})
	for range 4 {
		if status, body := asked(addr); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := asked(at[1]); status != 503 || !strings.Contains(body, `"standby"`) {
		t.Errorf("the standby answers %d %s", status, body)
	}
	followed := filepath.Join(p.dir, "b-state.json")
	await(t, "the standby to have the counters", func() bool {
		b, err := bounded(followed, 1<<20)
		return err == nil && strings.Contains(string(b), `"served":4`)
	})
	start := time.Now()
	_ = first.Process.Signal(syscall.SIGKILL)
	await(t, "the standby to serve", func() bool { status, _ := asked(at[1]); return status == 200 })
	t.Logf("served again %s after the kill", time.Since(start))
	if s := stateOf(t, at[1]); s.Served < 5 || s.HA.Epoch != 2 || !s.HA.Ready {
		t.Errorf("after the takeover: %+v", s)
	}
}

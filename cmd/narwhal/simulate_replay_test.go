package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The journal of a router on its command line replays; a changed one is found, and named.
func TestReplayDecisions(t *testing.T) {
	p := newPlainFleet(t)
	path := filepath.Join(p.dir, "j.jsonl")
	cmd := p.command("--listen", "127.0.0.1:0", "--journal", path)
	addr, _ := p.started(cmd)
	for range 5 {
		p.ask(addr)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	again := func(args ...string) ran {
		return finish(t, execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), append([]string{"simulate", "--replay-decisions"}, args...)...))
	}
	if r := again(path); r.code != 0 || !strings.Contains(r.out, "5 placements and") || !strings.Contains(r.out, ", 0 came out another way") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(p.dir, "other.jsonl")
	for _, c := range []struct {
		from, to, want string
		code           int
	}{
		{`"price":0`, `"price":1`, "decision.price is 1.", 8},
		{`"inputs":`, `"input":`, "no decision with its inputs", 2},
		{`"schema_version":1`, `"schema_version":7`, "journal of another version", 2},
	} {
		if err := os.WriteFile(other, []byte(strings.ReplaceAll(string(b), c.from, c.to)), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := again(other); r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("%s: exit %d: %s%s", c.from, r.code, r.out, r.err)
		}
	}
	if r := again(path, "--policy", "arrow"); r.code != 2 {
		t.Errorf("a policy beside it: exit %d", r.code)
	}
	if r := finish(t, execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), "simulate", path, "--ttft", "2", "--tpot", "0.1")); r.code != 0 || !strings.Contains(r.out, "5 requests offered") {
		t.Errorf("as a workload: exit %d: %s%s", r.code, r.out, r.err)
	}
}

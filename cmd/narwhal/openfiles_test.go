package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A limit of open files that the requests at once do not fit into is told, and serves.
func TestFewOpenFiles(t *testing.T) {
	p := newPlainFleet(t)
	for most, warned := range map[string]bool{"8": false, "300": true} {
		serve := p.command("--listen", "127.0.0.1:0", "--max-concurrent", most)
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 128; exec "$0" "$@"`}, serve.Args...)...)
		cmd.Dir, cmd.Env = serve.Dir, serve.Env
		var errs outputSoFar
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the router to serve", func() bool { return servingOn.MatchString(errs.String()) })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := strings.Contains(errs.String(), "128 open files are allowed"); got != warned {
			t.Errorf("with %s requests: %s", most, errs.String())
		}
	}
}

// A limit of open files that the router's own do not fit into is refused, with the least that it needs.
func TestTooFewOpenFiles(t *testing.T) {
	p := newPlainFleet(t)
	for _, files := range []string{"16", "20", "37"} {
		serve := p.command("--listen", "127.0.0.1:0", "--lease-path", filepath.Join(p.dir, "lease"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -n ` + files + `; exec "$0" "$@"`}, serve.Args...)...)
		cmd.Dir, cmd.Env = serve.Dir, serve.Env
		out, _ := cmd.CombinedOutput()
		if got := string(out); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(got, files+" open files are allowed, and a router of 2 engines needs at least 38") || !strings.Contains(got, "ulimit -n 38") {
			t.Errorf("with %s files: %v\n%s", files, cmd.ProcessState, got)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "lease")); err == nil {
		t.Error("a lease was taken")
	}
}

// Silent clients take neither the lease nor the engines from a router with few files, and it serves
// while they stay.
func TestIdleClientsTakeNoLease(t *testing.T) {
	p := newPlainFleet(t)
	for _, files := range []string{"38", "80"} {
		serve := p.command("--listen", "127.0.0.1:0", "--lease-path", filepath.Join(p.dir, "lease"+files), "--lease-ttl", "1", "--lease-renew-interval", "0.1", "--lease-safety-margin", "0.1",
			"--router-id", files, "--journal", filepath.Join(p.dir, files+".jsonl"), "--state-path", filepath.Join(p.dir, files+".json"))
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -n ` + files + `; exec "$0" "$@"`}, serve.Args...)...)
		cmd.Dir, cmd.Env = serve.Dir, serve.Env
		var errs outputSoFar
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		var at []string
		await(t, "the router to serve", func() bool { at = servingOn.FindStringSubmatch(errs.String()); return at != nil })
		for range 100 {
			c, err := net.DialTimeout("tcp", at[1], 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		for start := time.Now(); time.Since(start) < 2500*time.Millisecond; {
			if status, body := asked(at[1]); status != 200 {
				t.Fatalf("with %s files: %d %s\n%s", files, status, body, errs.String())
			}
		}
		if s := errs.String(); strings.Contains(s, "too many open files") || !strings.Contains(s, "clients have all connections") {
			t.Errorf("with %s files it says %s", files, s)
		}
	}
}

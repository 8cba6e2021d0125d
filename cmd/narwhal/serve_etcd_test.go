package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var etcdServes = regexp.MustCompile(`client (?:requests|traffic).*?(127\.0\.0\.1:\d+)`)

// startEtcd runs an etcd of its own, or skips where it is not installed.
func startEtcd(t *testing.T) (endpoint string) {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("NARWHAL_REQUIRE_ETCD") == "1" {
			t.Fatal("etcd is required and not installed")
		}
		t.Skip("etcd is not installed")
	}
	const any = "http://127.0.0.1:0"
	c := exec.Command(path, "--name", "one", "--data-dir", t.TempDir(), "--logger", "zap", "--log-outputs", "stderr",
		"--listen-client-urls", any, "--advertise-client-urls", any, "--listen-peer-urls", any, "--initial-advertise-peer-urls", any, "--initial-cluster", "one="+any)
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := etcdServes.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return "http://" + m[1]
		}
	}
	t.Fatal("etcd ended at its start")
	return ""
}

// children are the processes that another one started and that still exist, by id and state.
func children(t *testing.T, parent int) map[int]string {
	t.Helper()
	out := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("no /proc")
	}
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(parent) {
			id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out[id] = f[0]
		}
	}
	return out
}

// A guard that is killed is started anew, so that a router in etcd which is killed later is followed
// long before its lease expires.
func TestGuardIsStartedAnew(t *testing.T) {
	p := newPlainFleet(t)
	lease := []string{"--lease-etcd", startEtcd(t), "--lease-ttl", "60"}
	first, addr := p.serve(append(lease, "--router-id", "a")...)
	_, second := p.standby("b", addr, lease...)
	await(t, "the standby to have a handoff", func() bool {
		b, err := bounded(filepath.Join(p.dir, "b-state.json"), 1<<20)
		return err == nil && strings.Contains(string(b), `"epoch":1`)
	})
	var killed int
	await(t, "a guard", func() bool {
		for killed = range children(t, first.Process.Pid) {
			return true
		}
		return false
	})
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another guard, and no trace of the first", func() bool {
		list := children(t, first.Process.Pid)
		_, zombie := list[killed]
		return len(list) == 1 && !zombie
	})
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(page), "narwhal_router_lease_guard_ends_total 1\n") {
		t.Error("no metric of the guard's end")
	}
	start := time.Now()
	_ = first.Process.Signal(syscall.SIGKILL)
	await(t, "the standby to serve", func() bool { status, _ := asked(second); return status == 200 })
	t.Logf("served again %s after the kill", time.Since(start))
	if gap := time.Since(start); gap > 30*time.Second {
		t.Errorf("after %v", gap)
	}
}

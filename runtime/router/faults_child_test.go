package router

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

const childEnv = "NARWHAL_FAULTS_CHILD"

// childPlan tells a process of its own which router to be.
type childPlan struct {
	Engines []fleet.Engine
	Journal string
	Lease   string // directory of the lease; "" = none
	Files   uint64 // limit of open descriptors; 0 = as it is
}

// childConfig is a steered fleet of engines that run elsewhere.
func childConfig(engines []fleet.Engine, journal string) Config {
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", JournalPath: journal, Verify: anyProcess}
	cfg.Fleet.Engines = engines
	var rows []profile.Row
	for _, e := range engines {
		rows = append(rows, profile.NewRow(e.IID, "sha256:"+strings.Repeat("0", 64), curveOf(quick()), profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	cfg.Fleet.Engine.Tokenize, cfg.Fleet.Serving.Admission, cfg.Fleet.Serving.MaxConnections = false, "open", 4096
	return cfg
}

// TestFaultsChild is no test: it is the router of a process that others start and kill.
func TestFaultsChild(t *testing.T) {
	raw := os.Getenv(childEnv)
	if raw == "" {
		t.Skip("runs in a process of its own only")
	}
	var p childPlan
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		t.Fatal(err)
	}
	if p.Files > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: p.Files, Max: p.Files}); err != nil {
			t.Fatal(err)
		}
	}
	cfg := childConfig(p.Engines, p.Journal)
	if p.Lease != "" {
		shared(t, p.Lease, "primary")(&cfg)
	}
	r, err := New(cfg)
	if err == nil {
		err = r.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serves %s\n", r.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// childRouter starts a router in a process of its own and returns its address and its end.
func childRouter(t *testing.T, p childPlan) (addr string, kill func()) {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFaultsChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	kill = func() { _ = cmd.Process.Signal(syscall.SIGKILL); <-ended }
	t.Cleanup(func() {
		in.Close()
		late := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		<-ended
	})
	lines := bufio.NewScanner(out)
	for addr == "" && lines.Scan() {
		addr, _ = strings.CutPrefix(lines.Text(), "serves ")
		if addr == lines.Text() {
			t.Log(addr)
			addr = ""
		}
	}
	go func() {
		defer close(ended)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), "PASS") {
				fmt.Fprintln(os.Stderr, "child:", lines.Text())
			}
		}
		_ = cmd.Wait()
	}()
	if addr == "" {
		t.Fatal("the router process does not serve")
	}
	return addr, kill
}

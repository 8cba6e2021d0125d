//go:build scale

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mostGateMemory bounds the process that runs a gate, in MiB.
const mostGateMemory = 500

// mostLost is how many gates may be taken up again whose connection to a host was lost.
const mostLost = 3

// TestScale takes a sandbox of many hosts through all gates, one command a gate, and prints what each
// took. make scale sets the size.
func TestScale(t *testing.T) {
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	hosts, engines := number("NARWHAL_SCALE_HOSTS"), number("NARWHAL_SCALE_ENGINES")
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	state, sandbox := filepath.Join(dir, "state"), filepath.Join(dir, "sandbox")
	t.Cleanup(func() {
		if r := finishWithin(t, execCommand(bin, dir, state, "sandbox", "down", "--dir", sandbox), 5*time.Minute); r.code != 0 {
			t.Errorf("stop the sandbox: exit %d: %s", r.code, r.err)
		}
	})
	up := execCommand(bin, dir, state, "sandbox", "up", "--dir", sandbox, "--hosts", fmt.Sprint(hosts), "--engines-per-host", fmt.Sprint(engines))
	if r := finishWithin(t, up, 5*time.Minute); r.code != 0 {
		t.Fatalf("sandbox up: exit %d: %s", r.code, r.err)
	}
	file := filepath.Join(sandbox, "fleet.json")
	t.Logf("%d hosts × %d engines", hosts, engines)
	t.Logf("gate | seconds | CPU seconds | MiB | evidence")
	more := 0
	for gates := strings.Split("ABCDEFG", ""); len(gates) > 0; {
		gate := gates[0]
		cmd := execCommand(bin, dir, state, "gate", "run", "-f", file, "--to", gate, "--yes", "--format", "json")
		began := time.Now()
		r := finishWithin(t, cmd, time.Hour)
		took := time.Since(began)
		use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		var got struct {
			Errors []struct {
				Code    string `json:"code"`
				Message string `json:"message"`
			} `json:"errors"`
			Data struct {
				Gates []struct {
					Gate     string            `json:"gate"`
					State    string            `json:"state"`
					Evidence []json.RawMessage `json:"evidence"`
				} `json:"gates"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatalf("gate %s: exit %d: %v\n%s", gate, r.code, err, tail(r.err))
		}
		evidence := 0
		for _, g := range got.Data.Gates {
			if g.Gate == gate {
				evidence = len(g.Evidence)
			}
		}
		mib := use.Maxrss / 1024
		t.Logf("%s | %.1f | %.1f | %d | %d", gate, took.Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), mib, evidence)
		if mib > mostGateMemory {
			t.Errorf("gate %s took %d MiB, at most %d", gate, mib, mostGateMemory)
		}
		if r.code == 4 && more < mostLost { // hosts and engines share this machine
			more++
			t.Logf("gate %s is taken up again: %.600v", gate, got.Errors)
			continue
		}
		if r.code != 0 {
			t.Fatalf("gate %s: exit %d: %.600v\n%s", gate, r.code, got.Errors, tail(r.err))
		}
		gates = gates[1:]
		if pairs := hosts * (hosts - 1) / 2; gate == "D" && evidence < pairs {
			t.Errorf("gate D has %d pieces of evidence of %d pairs", evidence, pairs)
		}
	}
}

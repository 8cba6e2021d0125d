package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// sandboxFor starts hosts for a benchmark and returns a world around them.
func sandboxFor(b *testing.B, hosts int) (run func(want int, args ...string), fleet string) {
	b.Helper()
	bin, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sbx", "keys"), 0o700); err != nil {
		b.Fatal(err)
	}
	if _, _, err := attest.OpenKeyFile(filepath.Join(dir, "sbx", "keys", "operator.key"), nil); err != nil {
		b.Fatal(err)
	}
	s, err := sandbox.Up(sandbox.Config{Dir: filepath.Join(dir, "sbx"), Hosts: hosts, Operator: "keys/operator.key"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Down(ctx); err != nil {
			b.Error(err)
		}
	})
	state := filepath.Join(dir, "state")
	return func(want int, args ...string) {
		b.Helper()
		cmd := execCommand(bin, dir, state, args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			b.Fatalf("%v: %v\n%s", args, err, out)
		}
	}, s.Fleet
}

// BenchmarkGateA64 observes 64 hosts over SSH from nothing, once an iteration.
func BenchmarkGateA64(b *testing.B) {
	run, fleet := sandboxFor(b, 64)
	for b.Loop() {
		run(0, "gate", "run", "-f", fleet, "--to", "A", "--new")
	}
}

// BenchmarkSecondRun looks at a healthy fleet of four hosts and finds nothing to do.
func BenchmarkSecondRun(b *testing.B) {
	run, fleet := sandboxFor(b, 4)
	run(0, "gate", "run", "-f", fleet, "--yes", "--to", "E")
	for b.Loop() {
		run(0, "gate", "run", "-f", fleet, "--yes", "--to", "E")
	}
}

// BenchmarkVersion starts the program and ends it.
func BenchmarkVersion(b *testing.B) {
	bin, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if out, err := execCommand(bin, b.TempDir(), b.TempDir(), "version").CombinedOutput(); err != nil {
			b.Fatalf("%v %s", err, out)
		}
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/process"
)

// TestDemo runs the demo with shorter traffic: all gates pass, roles move, the record
// verifies, and nothing is left running.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := finish(t, execCommand(bin, dir, filepath.Join(dir, "unused"), "demo", "--quick", "--dir", dir, "--format", "json"))
	if r.code != 0 {
		t.Fatalf("exit %d\n%s\n%s", r.code, tail(r.out), tail(r.err))
	}
	var e struct {
		Data demoData `json:"data"`
	}
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		t.Fatal(err)
	}
	d := e.Data
	if len(d.Gates) != 7 {
		t.Fatalf("%d gates", len(d.Gates))
	}
	for _, g := range d.Gates {
		if g.State != "passed" {
			t.Errorf("gate %s is %s", g.Gate, g.State)
		}
	}
	if len(d.Traffic.Moves) == 0 {
		t.Error("no role moved")
	}
	if d.Traffic.Offered == 0 || d.Traffic.Qualified == 0 {
		t.Errorf("the traffic is %+v", d.Traffic)
	}
	if !d.Verified || d.Rollback.To != "C" || len(d.Rollback.Stopped) == 0 || len(d.Rollback.Residue) != 0 {
		t.Errorf("verified %v, rollback %+v", d.Verified, d.Rollback)
	}
	for _, path := range []string{d.Record, d.Report, d.Bundle} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	runs, err := filepath.Glob(filepath.Join(dir, "hosts", "hosts", "*", "narwhal", "run"))
	if err != nil || len(runs) == 0 {
		t.Fatalf("no run folders: %v", err)
	}
	for _, run := range runs {
		for _, p := range process.List(run) {
			if p.Alive() {
				t.Errorf("%s still runs", p.Name)
			}
		}
	}
}

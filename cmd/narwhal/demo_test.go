package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
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
	if d.Replayed.Placements < d.Traffic.Offered || d.Replayed.Evaluations == 0 {
		t.Errorf("replayed %+v of %d offered", d.Replayed, d.Traffic.Offered)
	}
	for _, path := range []string{d.Replayed.Journal, d.Record, d.Report, d.Bundle} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	if left := watchProcesses(once, dir); left != "" {
		t.Errorf("left running: %s", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "hosts", "hosts")); !os.IsNotExist(err) {
		t.Errorf("the hosts' folders stand: %v", err)
	}
	v := finish(t, execCommand(bin, dir, filepath.Join(dir, "unused"), "gate", "verify", d.Record, "--trust", filepath.Join(dir, "hosts", "keys", "operator.key.pub")))
	if v.code != 0 {
		t.Errorf("verify ends with %d: %s", v.code, v.err)
	}
	statementsFit(t, d.Record, true)
	if code, codes := independentlyIfThere(t, d.Record, filepath.Join(dir, "hosts", "keys", "operator.key.pub")); code != 0 {
		t.Errorf("the independent verifier ends with %d: %v", code, codes)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestStatusShowsEveryFinding reads those that the verdict's line does not hold, and says so where it cannot.
func TestStatusShowsEveryFinding(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	rec, err := record.Create(dir, record.Header{Run: "run-1", FleetName: "f", Fleet: []byte(`{"engines":[]}`), Version: "test"}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := []record.Finding{{Code: "clock-offset", Host: "h1", Want: "at most 2s", Got: "9s", Hint: "set its clock"}}
	for i := range 40 {
		all = append(all, record.Finding{Code: "kernel-old", Note: true, Message: fmt.Sprint("h", i, " has an\nold kernel")})
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := rec.Store("application/json", b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.Append(record.KindVerdict, "A", "", "", record.Verdict{State: record.VerdictFailed, Findings: all[:2], Object: &ref}); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	look := func() (gateStatus, string, string) {
		snap, err := record.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		st := statusOf("f", "run-1", dir, snap.State, nil, "127.0.0.1:8000", snap.Load)
		var short, long strings.Builder
		st.print(&short)
		st.printAll(&long)
		return st.Gates[0], short.String(), long.String()
	}
	g, short, long := look()
	if !slices.Equal(g.Findings, all) || g.Because != "" {
		t.Errorf("%d of %d findings, because %q", len(g.Findings), len(all), g.Because)
	}
	for _, text := range []string{"finding clock-offset: got 9s, want at most 2s\n", "set its clock\n", "note kernel-old: h39 has an; old kernel\n"} {
		if !strings.Contains(long, text) || strings.Contains(short, text) {
			t.Errorf("%q is not in the long form alone:\n%s", text, long)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, record.ObjectDir, ref.SHA256), append(b[:len(b)-1], ' ', ']'), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, _, long = look(); !slices.Equal(g.Findings, all[:2]) || !strings.Contains(g.Because, "only the first 2 findings can be read") || !strings.Contains(long, g.Because) {
		t.Errorf("%d findings of a changed object, because %q", len(g.Findings), g.Because)
	}
}

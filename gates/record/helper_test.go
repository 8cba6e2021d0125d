package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 29, 18, 51, 2, 123456789, time.UTC)

func testHeader() Header {
	return Header{Run: "20261129T185102Z-0a0b0c", FleetName: "tern", Fleet: []byte(`{"schema":"narwhal.fleet"}`), Release: "r1", Operator: "op", Version: "0.1"}
}

// ticking is a clock that moves one second a look.
func ticking() func() time.Time {
	now := start
	return func() time.Time { now = now.Add(time.Second); return now }
}

func create(t *testing.T) *Run {
	t.Helper()
	r, err := Create(filepath.Join(t.TempDir(), "run"), testHeader(), Options{Now: ticking()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func add(t *testing.T, r *Run, kind Kind, gate, step, host string, body any) Event {
	t.Helper()
	ev, err := r.Append(kind, gate, step, host, body)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// fill writes a small run that uses objects, a plan, a seal and a rollback.
func fill(t *testing.T, r *Run) {
	t.Helper()
	ref, err := r.Store("text/plain", []byte("facts of h1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetPlan("sha256:aa", 1, []byte(`{"steps":[]}`)); err != nil {
		t.Fatal(err)
	}
	add(t, r, KindFacts, "A", "", "", Facts{Values: map[string]string{"host/h1/boot": "b1"}})
	add(t, r, KindStarted, "A", "", "", nil)
	add(t, r, KindIntent, "A", "s1", "h1", Intent{Argv: []string{"mkdir", "<x>&"}, Effect: EffectMutate, Undo: json.RawMessage(`{"keep": {"sha256":"` + ref.SHA256 + `","media":"text/plain","bytes":12}}`)})
	add(t, r, KindOutcome, "A", "s1", "h1", Outcome{Status: StatusOK, DurationMS: 5, Output: &ref})
	add(t, r, KindEvidence, "A", "s1", "h1", Evidence{Key: NewKey("A", "host", "h1"), Ref: ref, Bonds: map[string]string{"host/h1/boot": "b1"}})
	add(t, r, KindVerdict, "A", "", "", Verdict{State: VerdictPassed})
	seq, digest := r.Head()
	if _, err := r.Seal("A", seq, digest, []byte(`{"mediaType":"x"}`)); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustVerify(t *testing.T, dir string) Report {
	t.Helper()
	rep, err := Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

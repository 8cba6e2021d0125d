package gates

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// wordy is a third gate that finds so much that no line holds it.
type wordy struct {
	third
	found []record.Finding
}

func (w wordy) Judge(View) []record.Finding { return w.found }

// TestVerdictWithManyFindings keeps all of them, those that fail the gate where a reader looks first.
func TestVerdictWithManyFindings(t *testing.T) {
	notes := make([]record.Finding, 600)
	for i := range notes {
		notes[i] = record.Finding{Code: "noise", Engine: fmt.Sprint("e", i), Note: true, Hint: "none", Message: strings.Repeat("<x>", 60)}
	}
	fault := record.Finding{Code: "fault", Hint: "mend it", Message: "broken"}
	for _, c := range []struct {
		found []record.Finding
		state string
	}{{notes, record.VerdictPassed}, {append(notes[:len(notes):len(notes)], fault), record.VerdictFailed}, {[]record.Finding{fault}, record.VerdictFailed}} {
		r := newRig(t)
		r.gates = []Gate{first{}, wordy{found: c.found}}
		out, err := r.run(t.Context(), Options{})
		g := r.state().Gates["C"]
		if err != nil || g.State != c.state {
			t.Fatalf("%s, %v, %v", g.State, out.Errors, err)
		}
		if c.state == record.VerdictFailed && (len(g.Findings) == 0 || g.Findings[0].Code != "fault") {
			t.Errorf("%d findings, the first is no fault", len(g.Findings))
		}
		r.verify()
		if len(c.found) == 1 {
			if g.Details != nil {
				t.Error("one finding lies in an object")
			}
			continue
		}
		snap, err := record.Read(r.dir)
		if err != nil || g.Details == nil {
			t.Fatalf("%+v, %v", g.Details, err)
		}
		all, err := Findings(g, snap.Load)
		if err != nil || !slices.Equal(all, c.found) || len(g.Findings) >= len(all) || len(g.Findings) < 10 {
			t.Errorf("%d of %d findings are kept, %d in the line: %v", len(all), len(c.found), len(g.Findings), err)
		}
		object := filepath.Join(r.dir, record.ObjectDir, g.Details.SHA256)
		b, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(object, bytes.Replace(b, []byte("noise"), []byte("voice"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		var changed *record.DigestError
		if all, err := Findings(g, snap.Load); !errors.As(err, &changed) || all != nil {
			t.Errorf("%d findings of a changed object, %v", len(all), err)
		}
	}
}

// TestRollbackWithALongResult ends, keeps all of it, and tells it again where the fleet still stands.
func TestRollbackWithALongResult(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	long := RollbackResult{To: "C", Stopped: []string{"x"}, Restored: []string{}, Rerun: []string{}, Residue: []string{}}
	for i := range 600 {
		long.Restored = append(long.Restored, fmt.Sprintf("D/pair/%060d/%060d", i, i+1))
		long.Residue = append(long.Residue, fmt.Sprint("stop engine-e", i, " on host h1: ", strings.Repeat("<x>", 60)))
		long.Findings = append(long.Findings, record.Finding{Code: "noise", Note: true, Message: strings.Repeat("<x>", 60)})
	}
	long.Findings = append(long.Findings, record.Finding{Code: "process-differs", Message: "engine-e has another id"})
	run, end := r.open()
	p, err := run.PlanRollback(t.Context(), "C")
	if err != nil || len(p.Steps) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := run.append(record.KindRollbackStarted, "", "", "", record.RollbackStarted{To: "C"}); err != nil {
		t.Fatal(err)
	}
	if _, err := run.endRollback(t.Context(), p, long); err != nil {
		t.Fatal(err)
	}
	end()
	d := r.state().LastRollback.Done
	if d == nil || d.Object == nil || len(d.Findings) < 2 || len(d.Findings) >= len(long.Findings) || d.Findings[0].Code != "process-differs" ||
		len(d.Residue) >= len(long.Residue) || len(d.Restored) >= len(long.Restored) || !slices.Equal(d.Stopped, long.Stopped) {
		t.Fatalf("recorded %+v", d)
	}
	r.verify()
	before := r.state().Seq
	_, again, err := r.rollback(t.Context(), "C")
	if err != nil || !slices.Equal(again.Findings, long.Findings) || !slices.Equal(again.Residue, long.Residue) || !slices.Equal(again.Restored, long.Restored) || r.state().Seq > before+2 {
		t.Errorf("again: %d findings, %d left behind, %d restored, %d events more, %v", len(again.Findings), len(again.Residue), len(again.Restored), r.state().Seq-before, err)
	}
}

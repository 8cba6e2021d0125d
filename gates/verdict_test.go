package gates

import (
	"encoding/json"
	"fmt"
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
		var all []record.Finding
		if b, err := snap.Load(*g.Details); err != nil || json.Unmarshal(b, &all) != nil || len(all) != len(c.found) || len(g.Findings) >= len(all) || len(g.Findings) < 10 {
			t.Errorf("%d of %d findings are kept, %d in the line: %v", len(all), len(c.found), len(g.Findings), err)
		}
	}
}

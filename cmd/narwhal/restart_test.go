package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// TestRestartDrill restarts an engine of each role in the middle of a run, which then proves the
// new processes before anything is served: one command, and nothing is left to repeat.
func TestRestartDrill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, func(doc map[string]any) {
		doc["deploy"].(map[string]any)["policy"].(map[string]any)["restart_drill"] = true
		doc["engine"].(map[string]any)["engine_api_key_env"] = "DRILL_KEY"
	})
	w.env = []string{"DRILL_KEY=k-4410"}
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	snap := w.latest()
	for _, e := range []string{"e0", "e1"} {
		var r preflight.Restarted
		entry, ok := snap.State.Evidence(preflight.RestartKey(e))
		if !ok {
			t.Fatalf("no evidence of a restart of %s", e)
		}
		b, err := snap.Load(entry.Ref)
		if err != nil || json.Unmarshal(b, &r) != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if !r.Back || r.After.Identity == r.Before.Identity || r.After.Launch != r.Before.Launch || r.Signed[0].Status != 200 || r.Signed[1].Status != 503 ||
			r.Down == nil || r.Old == nil || r.Down.Error == "" || r.Old.Error == "" || len(r.Failed) > 0 || !slices.Equal(r.Unsplit[0], r.Unsplit[1]) {
			t.Errorf("the drill of %s says %s", e, b)
		}
		var live struct {
			PID int `json:"pid"`
		}
		entry, _ = snap.State.Evidence(record.NewKey("C", "live", e))
		if b, err = snap.Load(entry.Ref); err != nil || json.Unmarshal(b, &live) != nil || live.PID != r.After.PID {
			t.Errorf("gate C knows process %d of %s, %d runs", live.PID, e, r.After.PID)
		}
	}
	again := w.must(0, w.gates())
	if got := made(t, w.latest(), snap.Seq); len(got) > 0 {
		t.Errorf("made again %v\n%s", got, again.err)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	w.must(0, w.run("gate", "rollback", "--to", "C", "--yes", "-f", w.fleet))
	if r, ok := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "engine-e0"); !ok || !r.Alive() {
		t.Error("a rollback to gate C left no engine")
	}
	planned := w.must(0, w.run("gate", "plan", "-f", w.fleet, "--format", "json", "--again", "F"))
	if !strings.Contains(planned.out, `"restart-drill"`) || strings.Contains(planned.out, "k-4410") {
		t.Errorf("the plan shows no drill, or the key: %.400s", planned.out)
	}
}

package router

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// eventDifferences are events of the reference that this router does not write, and why.
var eventDifferences = map[string]string{}

func recordedEvents(t *testing.T) (out []journal.Event) {
	t.Helper()
	for _, name := range []string{"journal", "journal-breaker", "journal-lifecycle"} {
		b, err := os.ReadFile("testdata/reference-" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := journal.Read(bytes.NewReader(b), func(l journal.Line) error {
			if l.Event != nil {
				out = append(out, *l.Event)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// kindOf tells rows apart that have one name and other fields.
func kindOf(e journal.Event) string {
	switch e.Name {
	case "engine_lifecycle":
		a, _ := e.Fields["action"].(string)
		return e.Name + " " + a
	case "engine_probe":
		k, _ := e.Fields["kind"].(string)
		return e.Name + " " + k
	case "controller_decision":
		by, _ := e.Fields["by"].(string)
		return e.Name + " " + by
	}
	return e.Name
}

// TestEventsHaveTheReferencesFields lets a router write each kind of event and compares
// the fields with the recorded ones of that kind: none may be missing.
func TestEventsHaveTheReferencesFields(t *testing.T) {
	b := startBed(t, 1, 2, quick(), func(c *Config) { c.Fleet.Controller.Reactive.StepS = 0.05; c.Fleet.Recovery.ReadmitEvery = 1000 })
	for range 2 {
		if a := b.complete(body(false, 4)); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	eventually(t, "a decision", func() bool { return b.state().Control["last_decision"] != nil })
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"engines":["d1"]}`); a.status != 200 {
		t.Fatal(a.body)
	}
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"engines":["d1"]}`); a.status != 200 {
		t.Fatal(a.body)
	}
	o := b.router.own
	b.router.interrogate(o.node("d0"), probeInference)
	o.do(func() {
		o.quarantine(o.node("d1"), holdInference, "p0")
		o.unhold(o.node("d1"), endVerification)
		p := o.node("p0")
		o.eject(p, causeLiveness)
		o.watchFloor(o.now())
		o.readmit(p, p.facts, "health")
		o.watchFloor(o.now())
		p.fault = "engine process did not restart after drain"
		o.lifecycleEvent(p, "validation_failed")
		p.fault = ""
		for _, by := range []string{control.ByFloorRecovery, control.ByDecodeFloor} {
			o.record(control.Decision{At: o.now(), By: by, Result: control.Applied, Applied: true}, nil)
		}
		o.move(control.Move{Engine: "d1", To: model.Decode, By: control.ByDecodeFloor}, o.now())
	})
	b.stop()
	ours := map[string]map[string]any{}
	readEvents(t, b.journal, func(e journal.Event) { ours[kindOf(e)] = e.Fields })
	for _, e := range recordedEvents(t) {
		if eventDifferences[e.Name] != "" {
			continue
		}
		got, ok := ours[kindOf(e)]
		if !ok {
			t.Errorf("no event %s", kindOf(e))
			continue
		}
		for k := range e.Fields {
			if _, ok := got[k]; !ok {
				t.Errorf("%s has no %s, only %v", kindOf(e), k, slices.Sorted(maps.Keys(got)))
			}
		}
	}
	if _, ok := ours["decode_floor_restored"]; !ok {
		t.Error("no event decode_floor_restored")
	}
}

// TestTheRouterShowsItsJournal checks health in state and metrics, and both after loss.
func TestTheRouterShowsItsJournal(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Journal = journal.Options{Rows: 64, MaxBytes: 1 << 12, Lossless: true} })
	for range 3 {
		if a := b.complete(body(false, 4)); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	eventually(t, "rows in the file", func() bool {
		j, _ := b.state().Router["journal"].(map[string]any)
		return j["written"].(float64) >= 4 && j["failing"] == false && j["queue_capacity"] == 64.0 && j["queued"] == 0.0
	})
	s, _ := b.scrape("")
	if s.series["narwhal_router_journal_queue_capacity_rows{}"] != "64" || s.series["narwhal_router_journal_rows_dropped_total{}"] != "0" {
		t.Errorf("%v", s.series)
	}
	b.stop()
	n := 0
	if _, err := journal.ReadPath(b.journal, func(l journal.Line) error {
		if l.Row != nil {
			n++
		}
		return nil
	}); err != nil || n != 3 {
		t.Errorf("%d rows over all files, %v", n, err)
	}
	if files, err := journal.Files(b.journal); err != nil || len(files) < 2 {
		t.Errorf("%v, %v", files, err)
	}
}

package attestation

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// planned forecasts gate E on a record with evidence of gate C.
func planned(t *testing.T, lose record.Key) ([]gates.Step, error) {
	t.Helper()
	return forecast(t, lose, gates.Options{})
}

// forecast is planned with a sidecar that was started before.
func forecast(t *testing.T, lose record.Key, o gates.Options) ([]gates.Step, error) {
	t.Helper()
	dir := t.TempDir() + "/run"
	r, err := record.Create(dir, record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for k, v := range map[record.Key]any{liveKey("e"): live{Version: "1", ProcessStart: 1, PID: 77, BootID: "b", Ticks: 9, Launch: strings.Repeat("a", 64)}, "C/cache/e": layout{Dtype: "auto"}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := r.Store("application/json", b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(record.KindEvidence, "C", "", "", record.Evidence{Key: k, Ref: ref}); err != nil {
			t.Fatal(err)
		}
		if k == lose {
			if err := os.Remove(dir + "/objects/" + ref.SHA256); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.Again["E"] {
		ref, err := r.Store("application/json", []byte(`{"name":"sidecar-e","id":"b:5:5"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(record.KindEvidence, "E", "", "", record.Evidence{Key: sidecarKey("e"), Ref: ref, Bonds: map[string]string{"proc/sidecar-e/id": "b:5:5"}}); err != nil {
			t.Fatal(err)
		}
	}
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: testFleet(), Record: r, Progress: gates.Quiet{}, Connect: func(context.Context, string) (gates.Host, error) {
		return host{}, nil
	}}
	f, err := run.Forecast(t.Context(), o)
	if err != nil {
		return nil, err
	}
	return f.Gates[0].Plan.Steps, nil
}

// host answers the runner's look alone.
type host struct{ gates.Host }

func (host) Run(context.Context, remote.Command) (remote.Result, error) {
	return remote.Result{Stdout: []byte(`{"facts":{"boot":"b","proc/engine-e/id":"b:77:9"}}`)}, nil
}

// Asked to repeat, the gate starts another sidecar than the one that runs.
func TestPlanAgainStartsAnew(t *testing.T) {
	launch := func(o gates.Options) string {
		steps, err := forecast(t, "", o)
		if err != nil || len(steps) != 5 {
			t.Fatalf("%d steps, %v", len(steps), err)
		}
		return strings.Join(steps[3].Check, " ")
	}
	first, again := launch(gates.Options{}), launch(gates.Options{Again: map[string]bool{"E": true}})
	if first == again || again != launch(gates.Options{Again: map[string]bool{"E": true}}) {
		t.Errorf("launched as %s, again as %s", first, again)
	}
}

func TestPlan(t *testing.T) {
	steps, err := planned(t, "")
	if err != nil || len(steps) != 5 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	watched, doc, port, start, ask := steps[0], steps[1], steps[2], steps[3], steps[4]
	if watched.Yields != observedKey("e") || watched.Effect != gates.Observe || !strings.Contains(strings.Join(watched.Argv, " "), "attest-observe") {
		t.Errorf("look %+v", watched)
	}
	if !slices.Contains(start.Needs, port.ID) || !strings.Contains(strings.Join(port.Argv, " "), "192.0.2.11:8110") {
		t.Errorf("the port is not checked first: %+v", port)
	}
	if d, err := attest.ParseDocument([]byte(doc.File.Content)); err != nil || d.Contract.EngineVersion != "1" {
		t.Errorf("document %v, %v", d, err)
	}
	line := strings.Join(start.Argv, " ")
	if !strings.Contains(line, `"--pid","77"`) || !strings.Contains(line, "192.0.2.11:8110") || start.Undo == nil || start.Yields != sidecarKey("e") {
		t.Errorf("sidecar %s", line)
	}
	if ask.Yields != statementKey("e") || !slices.Equal(ask.Needs, []string{start.ID}) || ask.Effect != gates.Observe {
		t.Errorf("statement %+v", ask)
	}
}

// TestPlanWithoutGateC shows what will be done although gate C's evidence has to be made
// again first: its object is lost.
func TestPlanWithoutGateC(t *testing.T) {
	for _, lost := range []record.Key{liveKey("e"), "C/cache/e"} {
		steps, err := planned(t, lost)
		if err != nil || len(steps) != 5 {
			t.Errorf("without %s: %d steps, %v", lost, len(steps), err)
		}
	}
}

package serve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// forecast plans gate G on a record; facts are what the host says of the router.
func forecast(t *testing.T, f fleet.Fleet, facts map[string]string, have ...record.Key) gates.Plan {
	t.Helper()
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, k := range have {
		ref, err := r.Store("application/json", []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(record.KindEvidence, "G", "", "", record.Evidence{Key: k, Ref: ref}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Append(record.KindNote, "", "", "", record.Note{Text: "begun"}); err != nil {
		t.Fatal(err)
	}
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}, Connect: func(context.Context, string) (gates.Host, error) { return looked{facts: facts}, nil }}
	got, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Gates[0].Plan
}

type looked struct {
	gates.Host
	facts map[string]string
}

func (l looked) Run(context.Context, remote.Command) (remote.Result, error) {
	facts := map[string]string{"boot": "b"}
	for k, v := range l.facts {
		facts[k] = v
	}
	b, err := json.Marshal(gates.Seen{Facts: facts})
	return remote.Result{Stdout: b}, err
}

func stepIDs(p gates.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.ID)
	}
	return out
}

func TestPlan(t *testing.T) {
	p := forecast(t, testFleet(), nil)
	if got := stepIDs(p); !slices.Equal(got, []string{"G/port", "G/fleet-file", "G/profiles", "G/router-drain", "G/router", "G/ready", "G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle"}) {
		t.Errorf("steps %v", got)
	}
	for i, s := range p.Steps[1:] {
		if !slices.Equal(s.Needs, stepIDs(gates.Plan{Steps: p.Steps[:i+1]})) {
			t.Errorf("%s needs %v", s.ID, s.Needs)
		}
	}
	start := p.Steps[4]
	if start.Effect != gates.Mutate || start.Undo == nil || start.Undo.Stops != "router" || p.Steps[2].File.Evidence != storeKey {
		t.Errorf("start %+v", start)
	}
	if !slices.ContainsFunc(p.Steps, func(s gates.Step) bool { return s.ID == "G/fleet-file" && !strings.Contains(s.File.Content, "deploy") }) {
		t.Error("the router's file holds deploy")
	}
}

// TestPlanDisruptsWhatServes marks a restart of a running router.
func TestPlanDisruptsWhatServes(t *testing.T) {
	p := forecast(t, testFleet(), map[string]string{"proc/router/id": "b:1:2", "proc/router/launch": "old"})
	for _, s := range p.Steps {
		if (s.ID == "G/router" || s.ID == "G/router-drain") && s.Effect != gates.Disrupt {
			t.Errorf("%s has effect %s", s.ID, s.Effect)
		}
	}
}

// TestPlanKeepsSecretsOut gives the engines' key and the control token by reference alone.
func TestPlanKeepsSecretsOut(t *testing.T) {
	f := testFleet()
	f.Engine.EngineAPIKeyEnv = "ENGINE_KEY"
	f.Deploy.Router.HTTP.ControlToken = "env:CONTROL_TOKEN"
	t.Setenv("ENGINE_KEY", "s3cret")
	t.Setenv("CONTROL_TOKEN", "s3cret")
	p := forecast(t, f, nil)
	b, err := json.Marshal(p)
	if err != nil || strings.Contains(string(b), "s3cret") {
		t.Errorf("the plan holds the key (%v)", err)
	}
	for _, s := range p.Steps {
		if s.ID != "G/router" {
			continue
		}
		var q gates.LaunchRequest
		if err := json.Unmarshal([]byte(s.Argv[3]), &q); err != nil || !slices.Equal(q.Spec.Inherit, []string{"CONTROL_TOKEN", "ENGINE_KEY"}) || s.Secrets["ENGINE_KEY"] != "env:ENGINE_KEY" || s.Secrets["CONTROL_TOKEN"] != "env:CONTROL_TOKEN" {
			t.Errorf("start %+v, %v", s, err)
		}
	}
}

// TestPlanRepeatsWhatDepends repeats what rests on the trial, not the router.
func TestPlanRepeatsWhatDepends(t *testing.T) {
	for _, c := range []struct {
		have []record.Key
		want []string
	}{
		{[]record.Key{routerDrainKey, routerKey, readyKey, journalKey, ringKey, acceptanceKey, bundleKey}, []string{"G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle"}},
		{[]record.Key{routerDrainKey, routerKey, readyKey, trialKey, ringKey, acceptanceKey, bundleKey}, []string{"G/journal"}},
		{[]record.Key{routerDrainKey, routerKey, readyKey, trialKey, journalKey, acceptanceKey, bundleKey}, []string{"G/ring"}},
		{[]record.Key{routerDrainKey, routerKey, readyKey, trialKey, journalKey, ringKey, bundleKey}, []string{"G/acceptance"}},
		{[]record.Key{routerDrainKey, routerKey, readyKey, trialKey, journalKey, ringKey, acceptanceKey}, []string{"G/bundle"}},
	} {
		// Evidence without bonds holds whatever the facts are.
		if got := stepIDs(forecast(t, testFleet(), nil, c.have...)); !slices.Equal(got, c.want) {
			t.Errorf("with %v: %v, want %v", c.have, got, c.want)
		}
	}
}

func TestHalts(t *testing.T) {
	for _, c := range []struct {
		key  record.Key
		body string
		want string
	}{
		{readyKey, `{"ready":false}`, "the router is not ready"},
		{readyKey, `{"ready":true}`, ""},
		{readyKey, `garbage`, ""},
		{routerKey, `{"ready":false}`, ""},
	} {
		if got := (Gate{}).Halts(c.key, []byte(c.body)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.key, c.body, got, c.want)
		}
	}
}

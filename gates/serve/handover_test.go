package serve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func pairFleet() fleet.Fleet {
	f := testFleet()
	f.Deploy.Hosts["h1"] = fleet.Host{Address: "192.0.2.11", Root: "/opt/n"}
	f.Deploy.Hosts["h2"] = fleet.Host{Address: "192.0.2.12", Root: "/opt/n"}
	f.Deploy.Router.Listen = "0.0.0.0:8000"
	f.Deploy.Router.Standby, f.Deploy.Router.Lease.Path = &fleet.Standby{Host: "h2", Listen: "0.0.0.0:8001"}, "/srv/lease.json"
	return f
}

// running are the facts of the two processes; "" = it does not run.
func running(router, standby, serves string) map[string]string {
	facts := map[string]string{}
	for name, launch := range map[string]string{routerName: router, standbyName: standby} {
		if launch == "" {
			continue
		}
		facts["proc/"+name+"/id"], facts["proc/"+name+"/launch"], facts["proc/"+name+"/serves"] = "b:"+name, launch, gates.Idle
		if name == serves {
			facts["proc/"+name+"/serves"] = gates.Serves
		}
	}
	return facts
}

// pairPlan plans gate G for a pair whose standby was started under the succession of before.
func pairPlan(t *testing.T, f, before fleet.Fleet, facts map[string]string, want ...record.Key) gates.Plan {
	t.Helper()
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ref, err := r.Store("application/json", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	bonds := map[string]string{"fleet/succession": gates.Inputs(before, gates.Release{})["fleet/succession"]}
	for _, k := range (Gate{}).Expect(f) {
		e := record.Evidence{Key: k, Ref: ref}
		if k == standbyKey {
			e.Bonds = bonds
		}
		if _, err := r.Append(record.KindEvidence, "G", "", "", e); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(want, k) {
			if _, err := r.Append(record.KindStale, "G", "", "", record.Stale{Key: k, Because: "it changed"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}, Connect: func(_ context.Context, id string) (gates.Host, error) {
		mine := map[string]string{}
		for k, v := range facts {
			if strings.Contains(k, "/standby/") == (id == "h2") {
				mine[k] = v
			}
		}
		return looked{facts: mine}, nil
	}}
	got, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Gates[0].Plan
}

// launchOf is the launch that a plan gives a process.
func launchOf(t *testing.T, p gates.Plan, id string) string {
	t.Helper()
	for _, s := range p.Steps {
		var q gates.LaunchRequest
		if s.ID == id && json.Unmarshal([]byte(s.Argv[3]), &q) == nil {
			return q.Spec.Launch
		}
	}
	t.Fatalf("no step %s", id)
	return ""
}

var tail = []string{"G/trial", "G/journal", "G/ring", "G/acceptance", "G/bundle"}

// TestPlanHandsOver says for each state of the pair how the router is brought up.
func TestPlanHandsOver(t *testing.T) {
	f := pairFleet()
	other := pairFleet()
	other.Engines = other.Engines[:1]
	fresh := pairPlan(t, f, f, nil, routerKey)
	ours, behind := launchOf(t, fresh, "G/router"), launchOf(t, fresh, "G/standby")
	over := []string{"G/standby-port", "G/standby-fleet-file", "G/standby-profiles", "G/standby-anew", "G/follow-router", "G/port", "G/fleet-file", "G/profiles",
		"G/router-drain", "G/router", "G/follow-standby", "G/standby-drain", "G/ready", "G/standby", "G/standing"}
	anew := []string{"G/standby-drain", "G/port", "G/fleet-file", "G/profiles", "G/router-drain", "G/router", "G/ready", "G/standby-port", "G/standby-fleet-file", "G/standby-profiles", "G/standby", "G/standing"}
	back := []string{"G/port", "G/fleet-file", "G/profiles", "G/router-drain", "G/router", "G/follow-standby", "G/standby-drain", "G/ready", "G/standby-port", "G/standby-fleet-file", "G/standby-profiles", "G/standby", "G/standing"}
	for _, c := range []struct {
		what   string
		before fleet.Fleet
		facts  map[string]string
		wants  []record.Key
		want   []string
		verb   string // of the router's start
		keeps  bool
	}{
		{"nothing runs", f, nil, []record.Key{routerKey}, anew, "serve", false},
		{"both run as before", f, running("old", "old", routerName), []record.Key{routerKey}, over, "standby", false},
		{"both run as wanted", f, running(ours, behind, routerName), []record.Key{routerKey}, anew, "serve", true},
		{"other engines", other, running("old", "old", routerName), []record.Key{routerKey}, anew, "serve", false},
		{"the standby is gone", f, running("old", "", routerName), []record.Key{routerKey}, anew, "serve", false},
		{"nobody serves", f, running("old", "old", ""), []record.Key{routerKey}, anew, "serve", false},
		{"the router is gone and the standby serves", f, running("", "old", standbyName), []record.Key{routerKey}, back, "standby", false},
		{"the router waits behind the standby", f, running("old", "old", standbyName), []record.Key{readyKey}, back, "standby", false},
	} {
		p := pairPlan(t, f, c.before, c.facts, c.wants...)
		if got := stepIDs(p); !slices.Equal(got, slices.Concat(c.want, tail)) {
			t.Errorf("%s:\n got %v\nwant %v", c.what, got, c.want)
			continue
		}
		for _, s := range p.Steps {
			var start gates.LaunchRequest
			var end gates.DrainRequest
			switch s.ID {
			case "G/router":
				if json.Unmarshal([]byte(s.Argv[3]), &start) != nil || start.Spec.Argv[1] != c.verb {
					t.Errorf("%s: the router is started with %v", c.what, start.Spec.Argv)
				}
				if c.verb == "standby" && start.Spec.Argv[3] != "http://192.0.2.12:8001" {
					t.Errorf("%s: it follows %s", c.what, start.Spec.Argv[3])
				}
			case "G/router-drain", "G/standby-drain":
				if json.Unmarshal([]byte(s.Argv[3]), &end) != nil || len(end.Keep) > 0 != c.keeps {
					t.Errorf("%s: %s keeps %v", c.what, s.ID, end.Keep)
				}
				want := ""
				if slices.Contains(c.want, "G/follow-router") && s.ID == "G/router-drain" {
					want = "http://192.0.2.12:8001"
				} else if slices.Contains(c.want, "G/follow-standby") && s.ID == "G/standby-drain" {
					want = "http://192.0.2.11:8000"
				}
				if end.Successor != want || (end.SucceedWithin > 0) != (want != "") || s.Limit <= end.Within+end.SucceedWithin {
					t.Errorf("%s: %s hands over to %q within %s, limit %s", c.what, s.ID, end.Successor, end.SucceedWithin, s.Limit)
				}
			}
		}
	}
}

// TestPlanOfTheStandbyAlone leaves the router alone.
func TestPlanOfTheStandbyAlone(t *testing.T) {
	f := pairFleet()
	want := []string{"G/standby-port", "G/standby-fleet-file", "G/standby-profiles", "G/standby", "G/standing"}
	if got := stepIDs(pairPlan(t, f, f, running("old", "", routerName), standbyKey, standingKey)); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := stepIDs(pairPlan(t, f, f, running("old", "old", routerName), standingKey)); !slices.Equal(got, []string{"G/standing"}) {
		t.Errorf("got %v", got)
	}
}

// TestAnotherReleaseIsAnotherLaunch: a new binary is no reason to adopt what runs.
func TestAnotherReleaseIsAnotherLaunch(t *testing.T) {
	f := testFleet()
	a, err := partsOf(gates.View{Fleet: f, Release: gates.Release{SHA256: "a"}}, theRouter(f))
	b, berr := partsOf(gates.View{Fleet: f, Release: gates.Release{SHA256: "b"}}, theRouter(f))
	if err != nil || berr != nil || a.launch == b.launch {
		t.Errorf("launches %s and %s, %v %v", a.launch, b.launch, err, berr)
	}
}

// TestHaltsBeforeAnEnd ends nothing that nobody can take over from.
func TestHaltsBeforeAnEnd(t *testing.T) {
	for _, c := range []struct {
		key  record.Key
		body string
		want bool
	}{
		{standingKey, `{"standing":false,"reason":"x","before":"router"}`, true},
		{standingKey, `{"standing":true,"before":"router"}`, false},
		{standingKey, `{"standing":false,"reason":"x"}`, false},
		{routerDrainKey, `{"succeeded":{"ready":false}}`, true},
		{standbyDrainKey, `{"succeeded":{"ready":false}}`, true},
		{standbyDrainKey, `{"succeeded":{"ready":true}}`, false},
		{routerDrainKey, `{"was_running":true}`, false},
	} {
		if got := (Gate{}).Halts(c.key, []byte(c.body)); (got != "") != c.want {
			t.Errorf("%s %s: %q", c.key, c.body, got)
		}
	}
}

package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// TestNote says what was carried, on what, and what nobody looked at.
func TestNote(t *testing.T) {
	f := testFleet()
	e := good(f, nil)
	e.counted()
	e.noted(t, f)
	if a := e.note; a.Highest != 10 || len(a.Rates) != 2 || !a.Rates[1].Passed || *a.Rates[1].TTFT.P95 != 200 || a.Needs != 0.75 || a.Workload.Requests != 4 || len(a.Offers) != 64 || len(a.Revision) != 64 {
		t.Errorf("%+v", a)
	}
	e.trial.Points[1].Reconnects = 1
	if _, highest := e.trial.carried(f); highest != 5 {
		t.Errorf("a rate through a broken tunnel counts: %g", highest)
	}
	e.trial.Points[0].Rows[0].Completed, e.trial.Points[0].Rows[1].Completed = false, false
	if rates, highest := e.trial.carried(f); highest != 0 || rates[0].Passed {
		t.Errorf("a rate counts although the one before it did not pass: %g", highest)
	}
}

func TestUnchecked(t *testing.T) {
	for want, r := range map[string]fleet.Router{
		"no standby":            {},
		"without deploy.router": {Standby: &fleet.Standby{}},
		"a takeover":            {Standby: &fleet.Standby{}, Lease: fleet.RouterLease{Path: "/l"}},
	} {
		f := testFleet()
		f.Deploy.Router = r
		got := unchecked(f, Trial{NotRun: []float64{7}})
		if !strings.Contains(strings.Join(got, "\n"), want) || !slices.Contains(got, "7/s: it was not offered") {
			t.Errorf("%s: %v", want, got)
		}
	}
}

// TestUncheckedOfEngines names what earlier gates had no way to look at.
func TestUncheckedOfEngines(t *testing.T) {
	f := testFleet()
	f.Deploy.Launch, f.Deploy.Defaults.Launch = map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"x"}}}, "l"
	f.Deploy.Profile.LeaseDrill, f.Engine.FirstTokenTimeoutS = false, 0
	all := strings.Join(unchecked(f, Trial{}), "\n")
	for _, want := range []string{"model_dir", "lease_drill", "first_token_timeout_s", "without systemd"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not named:\n%s", want, all)
		}
	}
	for name, l := range f.Deploy.Launch {
		l.ModelDir = "/m"
		f.Deploy.Launch[name] = l
	}
	f.Deploy.Profile.LeaseDrill, f.Engine.FirstTokenTimeoutS, f.Deploy.Supervise = true, 5, fleet.SuperviseSystem
	all = strings.Join(unchecked(f, Trial{}), "\n")
	for _, want := range []string{"model_dir", "lease_drill", "first_token_timeout_s", "without systemd"} {
		if strings.Contains(all, want) {
			t.Errorf("%q is named:\n%s", want, all)
		}
	}
}

// TestRolesOf takes engines of the fleet alone.
func TestRolesOf(t *testing.T) {
	f := testFleet()
	got := rolesOf([]byte(`{"pools":{"prefill":["p0","stranger"],"decode":["d0"]}}`), f)
	if !slices.Equal(got["prefill"], []string{"p0"}) || !slices.Equal(got["decode"], []string{"d0"}) {
		t.Errorf("%v", got)
	}
	if got := rolesOf([]byte(`oops`), f); len(got["prefill"])+len(got["decode"]) != 0 {
		t.Errorf("%v", got)
	}
	if lists([]byte(`{"data":[{"id":"other"}]}`), "tiny") || !lists([]byte(`{"data":[{"id":"tiny"}]}`), "tiny") {
		t.Error("the model list is read wrongly")
	}
}

package serve

import (
	"errors"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// TestSpared says which engines a fleet can spare.
func TestSpared(t *testing.T) {
	var f fleet.Fleet
	f.Controller.MinPrefill, f.Controller.MinDecode = 1, 2
	list := func(live ...string) (s lifecycle.State) {
		for _, id := range []string{"p0", "p1", "d0", "d1", "d2"} {
			role := fleet.RolePrefill
			if id[0] == 'd' {
				role = fleet.RoleDecode
			}
			s.List = append(s.List, lifecycle.Listed{IID: id, Role: role, Live: slices.Contains(live, id)})
		}
		return s
	}
	for _, c := range []struct {
		what, code string
		live, out  []string
		allow, all bool
	}{
		{"one of many", "", []string{"p0", "p1", "d0", "d1", "d2"}, []string{"d0"}, false, false},
		{"at the floor", "below_floor", []string{"p0", "p1", "d0", "d1"}, []string{"d0"}, false, false},
		{"at the floor, allowed", "", []string{"p0", "p1", "d0", "d1"}, []string{"d0"}, true, false},
		{"the last of its role", "last_engine", []string{"p0", "d0", "d1", "d2"}, []string{"p0"}, false, false},
		{"one that does not serve", "", []string{"p0", "d0", "d1"}, []string{"d2"}, false, false},
		{"the whole fleet", "", []string{"p0", "d0"}, []string{"p0", "p1", "d0", "d1", "d2"}, false, true},
		{"one that the router has not", "engine_not_served", []string{"p0", "d0"}, []string{"x"}, true, false},
	} {
		err := spared(list(c.live...), f, gates.Outing{Engines: c.out, BelowFloor: c.allow, All: c.all})
		var p *problem.Problem
		code := ""
		if errors.As(err, &p) {
			code = p.Code
			if p.Status != problem.Refused || p.Hint == "" {
				t.Errorf("%s: %+v", c.what, p)
			}
		}
		if code != c.code {
			t.Errorf("%s: %q, want %q", c.what, code, c.code)
		}
	}
}

// TestOrdersAreWorded gives what a router says a code, a status and a hint.
func TestOrdersAreWorded(t *testing.T) {
	for code, err := range map[string]error{
		"router_refused": &lifecycle.Refusal{Status: 409, Reason: "no other engine is live"},
		"router_denied":  &lifecycle.Denied{Status: 401},
		"router_order":   &lifecycle.Late{For: "d0"},
	} {
		if p := ordered("drain", lifecycle.Target{IID: "d0"}, err); p.Code != code || p.Hint == "" || !errors.Is(p, err) {
			t.Errorf("%s: %+v", code, p)
		}
	}
}

// TestOutingTargets gives one order for the whole fleet, and one for each engine of some.
func TestOutingTargets(t *testing.T) {
	for _, c := range []struct {
		o        gates.Outing
		step     string
		evidence record.Key
		targets  []lifecycle.Target
	}{
		{gates.Outing{Engines: []string{"d0"}}, "out/d0", "G/out/d0", []lifecycle.Target{{IID: "d0"}}},
		{gates.Outing{Engines: []string{"d0", "p0"}}, "out/some", "", []lifecycle.Target{{IID: "d0"}, {IID: "p0"}}},
		{gates.Outing{Engines: []string{"d0", "p0"}, All: true}, "out/fleet", "", []lifecycle.Target{{All: true}}},
	} {
		steps := Gate{}.Out(gates.View{}, c.o)
		if !slices.Equal(targetsOf(c.o), c.targets) || len(steps) != 1 || steps[0].ID != "G/"+c.step || steps[0].Yields != c.evidence {
			t.Errorf("%v: %v, %+v", c.o.Engines, targetsOf(c.o), steps)
		}
	}
}

// TestActivationPlan places the profiles at every router before any is told.
func TestActivationPlan(t *testing.T) {
	f := testFleet()
	steps, err := Gate{}.Activate(gates.View{Fleet: f, Facts: map[string]string{}}, gates.Outing{Engines: []string{"d0"}})
	if err != nil || len(steps) != 2 || steps[0].File == nil || steps[0].File.Evidence != storeKey || steps[1].Yields != gates.ActivationKey || !slices.Equal(steps[1].Needs, []string{steps[0].ID}) {
		t.Errorf("%+v, %v", steps, err)
	}
	f.Deploy.Router.Lease.Path, f.Deploy.Router.Standby = "/srv/lease", &fleet.Standby{Host: f.Deploy.Router.Host, Listen: "127.0.0.1:8001"}
	steps, err = Gate{}.Activate(gates.View{Fleet: f, Facts: map[string]string{}}, gates.Outing{Engines: []string{"d0"}})
	if err != nil || len(steps) != 3 || steps[1].File.Path == steps[0].File.Path || len(steps[2].Needs) != 2 {
		t.Errorf("with a standby: %+v, %v", steps, err)
	}
}

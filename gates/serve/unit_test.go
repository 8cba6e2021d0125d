package serve

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
)

// TestUnitOfTheRouter: a unit changes the launch, takes its secrets of its host, and after a
// crash begins as the router alone.
func TestUnitOfTheRouter(t *testing.T) {
	f := fleet.Fleet{Deploy: &fleet.Deploy{Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}}, Router: fleet.Router{
		Host: "h1", Listen: "127.0.0.1:8000", Standby: &fleet.Standby{Host: "h2", Listen: "127.0.0.1:8000"}, Lease: fleet.RouterLease{Path: "/shared/lease"}}}}
	f.Engine.EngineAPIKeyEnv = "ENGINE_KEY"
	launchOf := func(scope string) (parts, gates.LaunchRequest) {
		t.Helper()
		g := f
		d := *f.Deploy
		d.Supervise = scope
		g.Deploy = &d
		p, err := partsOf(gatestest.View(t, g, gates.Release{}, time.Time{}, nil), theRouterBehind(g))
		if err != nil {
			t.Fatal(err)
		}
		var q gates.LaunchRequest
		if err := json.Unmarshal([]byte(p.start.Argv[len(p.start.Argv)-1]), &q); err != nil {
			t.Fatal(err)
		}
		return p, q
	}
	own, ownLaunch := launchOf(fleet.SuperviseOwn)
	if ownLaunch.Spec.Unit != nil || ownLaunch.Spec.Again != nil || own.start.Secrets["ENGINE_KEY"] != "env:ENGINE_KEY" {
		t.Errorf("narwhal's own: %+v, secrets %v", ownLaunch.Spec, own.start.Secrets)
	}
	unit, q := launchOf(fleet.SuperviseSystem)
	if u := q.Spec.Unit; u == nil || u.Name != "narwhal-tern-router.service" || !u.Boot || u.User || unit.launch == own.launch {
		t.Errorf("unit %+v, launch %s, narwhal's own %s", u, unit.launch, own.launch)
	}
	if len(unit.start.Secrets) != 0 || !slices.Equal(q.Spec.Inherit, []string{"ENGINE_KEY"}) {
		t.Errorf("secrets %v, inherits %v", unit.start.Secrets, q.Spec.Inherit)
	}
	if !slices.Contains(q.Spec.Argv, "standby") || slices.Contains(q.Spec.Again, "standby") || !slices.Contains(q.Spec.Again, "serve") {
		t.Errorf("starts %v, then %v", q.Spec.Argv, q.Spec.Again)
	}
	if user, _ := launchOf(fleet.SuperviseUser); user.launch == unit.launch {
		t.Error("the units of two managers are one launch")
	}
}

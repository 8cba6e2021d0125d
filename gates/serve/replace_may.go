package serve

import (
	"context"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// May asks the router whether the fleet can spare the engines.
func (Gate) May(ctx context.Context, env gates.Env, o gates.Outing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := theControl(ctx, env)
	if err != nil {
		return err
	}
	defer c.Close()
	return mayTakeOut(ctx, c, env.View().Fleet, o)
}

func mayTakeOut(ctx context.Context, c *lifecycle.Client, f fleet.Fleet, o gates.Outing) error {
	s, err := c.State(ctx)
	if err != nil {
		return ordered("look at", targetsOf(o)[0], err)
	}
	return spared(s, f, o)
}

// spared refuses to take what leaves no engine of a role, or fewer than its floor. What does not
// serve is not missed, and a wave has its own meaning.
func spared(s lifecycle.State, f fleet.Fleet, o gates.Outing) error {
	left, leaves := map[string]int{}, map[string]string{}
	known := map[string]bool{}
	for _, e := range s.List {
		known[e.IID] = true
		switch out := slices.Contains(o.Engines, e.IID); {
		case out && e.Live:
			leaves[e.Role] = e.IID
		case e.Live && !out:
			left[e.Role]++
		}
	}
	for _, id := range o.Engines {
		if !known[id] {
			return problem.New(problem.Refused, "engine_not_served", fmt.Sprintf("the router has no engine %q", clean(id, 128)), "narwhal gate run starts it with the fleet file of now")
		}
	}
	if o.All || o.BelowFloor {
		return nil
	}
	floors := map[string]int{fleet.RolePrefill: f.Controller.MinPrefill, fleet.RoleDecode: f.Controller.MinDecode}
	for _, role := range []string{fleet.RolePrefill, fleet.RoleDecode} {
		id := leaves[role]
		switch {
		case id == "":
		case left[role] == 0:
			p := problem.New(problem.Refused, "last_engine", fmt.Sprintf("%s is the last engine that serves as %s", clean(id, 128), role), "bring another one up first, or --below-floor takes it all the same; --wave replaces the whole fleet")
			p.Engine = id
			return p
		case left[role] < floors[role]:
			p := problem.New(problem.Refused, "below_floor", fmt.Sprintf("without %s %d engines serve as %s, and the floor is %d", clean(id, 128), left[role], role, floors[role]), "wait until the others serve, lower controller.min_"+role+", or --below-floor takes it all the same")
			p.Engine = id
			return p
		}
	}
	return nil
}

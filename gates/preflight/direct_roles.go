package preflight

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// AsLive has engines asked in the roles that their processes have now, and switches none: a router may
// serve with them. It changes nothing where a role is a label of the router's.
func (d *Direct) AsLive(ctx context.Context) {
	if !concurrent(d.Fleet) {
		return
	}
	live, away := slices.Clone(d.Fleet.Engines), make([]bool, len(d.Fleet.Engines))
	var g errgroup.Group
	g.SetLimit(mostSteps)
	for i := range live {
		live[i].Pin = true
		g.Go(func() error {
			role, err := d.role(ctx, live[i].IID)
			if away[i] = err != nil; err == nil && role != engine.RoleNone {
				live[i].Role = role
			}
			return nil
		})
	}
	_ = g.Wait()
	d.live, d.away = live, map[string]bool{}
	for i, e := range live {
		d.away[e.IID] = away[i]
	}
}

// role is the one that an engine's process has.
func (d *Direct) role(ctx context.Context, iid string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	dialect, c, err := d.client(iid)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return roleOfProcess(ctx, dialect, c)
}

// asLive is the fleet with all its engines, in the roles of their processes where they told them.
func (d *Direct) asLive() fleet.Fleet {
	f := d.Fleet
	if d.live != nil {
		f.Engines = d.live
	}
	return f
}

// seen is the fleet as it is asked. Engines that did not tell their role are left out, so that none is
// asked beside them, but for the named one.
func (d *Direct) seen(named string) fleet.Fleet {
	f := d.asLive()
	f.Engines = slices.DeleteFunc(slices.Clone(f.Engines), func(e fleet.Engine) bool { return d.away[e.IID] && e.IID != named })
	return f
}

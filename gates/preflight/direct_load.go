package preflight

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Load is what an engine's metrics say of its requests.
type Load struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Unknown says why it cannot be told.
	Unknown string `json:"unknown,omitempty"`
}

// Busy reports whether the engine has requests.
func (l Load) Busy() bool { return l.Running+l.Waiting > 0 }

func (l Load) String() string {
	return fmt.Sprintf("%d requests running and %d waiting", l.Running, l.Waiting)
}

// Loads asks engines how many requests they have.
func (d *Direct) Loads(ctx context.Context, ids []string) map[string]Load {
	all := make([]Load, len(ids))
	var g errgroup.Group
	g.SetLimit(mostSteps)
	for i, iid := range ids {
		g.Go(func() error {
			s, err := d.state(ctx, iid)
			all[i] = Load{Running: s.Running, Waiting: s.Waiting}
			if err != nil {
				all[i].Unknown = engine.Printable(err.Error(), longText)
			}
			return nil
		})
	}
	_ = g.Wait()
	out := map[string]Load{}
	for i, iid := range ids {
		out[iid] = all[i]
	}
	return out
}

func (d *Direct) state(ctx context.Context, iid string) (engine.State, error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	dialect, c, err := d.client(iid)
	if err != nil {
		return engine.State{}, err
	}
	defer c.Close()
	m, err := c.Metrics(ctx)
	if err != nil {
		return engine.State{}, err
	}
	return dialect.State(m)
}

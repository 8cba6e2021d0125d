package preflight

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/internal/pause"
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

// An engine with one request is asked again for lookFor: a router sends an ejected engine a token now
// and then, to learn whether it is well.
const (
	lookFor   = 2 * time.Second
	lookPause = 200 * time.Millisecond
)

// Loads asks engines how many requests they have.
func (d *Direct) Loads(ctx context.Context, ids []string) map[string]Load {
	all := make([]Load, len(ids))
	var g errgroup.Group
	g.SetLimit(mostSteps)
	for i, iid := range ids {
		g.Go(func() error {
			all[i] = d.load(ctx, iid)
			for until := time.Now().Add(lookFor); all[i].Running+all[i].Waiting == 1 && time.Now().Before(until) && pause.For(ctx, lookPause); {
				all[i] = d.load(ctx, iid)
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

func (d *Direct) load(ctx context.Context, iid string) Load {
	s, err := d.state(ctx, iid)
	l := Load{Running: s.Running, Waiting: s.Waiting}
	if err != nil {
		l.Unknown = engine.Printable(err.Error(), longText)
	}
	return l
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

package lifecycle

import (
	"context"
	"time"
)

// Restart is a drain, a restart by somebody else, and a readmission.
type Restart struct {
	Target
	Deadline time.Duration
	// Limit bounds the drain and the return, each.
	Limit time.Duration
	// Relaunch restarts the process; nil = whoever runs it does, while the router is asked
	// again and again. That needs a fleet whose processes are told apart.
	Relaunch func(context.Context) error
	// Step is told what begins, Seen what the router says meanwhile.
	Step func(string)
	Seen Seen
}

// Left is a restart that ends with its target drained.
type Left struct{ cause error }

func (e *Left) Error() string { return e.cause.Error() }
func (e *Left) Unwrap() error { return e.cause }

// Same is a target that returned as the process that it was.
type Same struct{ IID string }

func (e *Same) Error() string { return e.IID + " serves again, as the same process as before" }

// Untold is a restart without a command, of a process that the router would not tell from
// the next one.
type Untold struct{ Target }

func (e *Untold) Error() string {
	return e.String() + " is drained, and without an engine contract the router takes the old process back as well as a new one"
}

// Run carries a restart out. One that is run again goes on: what is drained is not drained twice.
func (r Restart) Run(ctx context.Context, c *Client) (Document, error) {
	r.Step("drain " + r.String())
	d, err := c.Drain(ctx, r.Target, r.Deadline)
	if err != nil {
		return d, err
	}
	if !r.Ready(d) {
		d, err = limited(ctx, r.Limit, func(ctx context.Context) (Document, error) { return c.WaitReady(ctx, r.Target, r.Seen) })
		if err != nil {
			return d, &Left{err}
		}
	}
	switch {
	case r.Relaunch != nil:
		r.Step("restart the process of " + r.String())
		if err := r.Relaunch(ctx); err != nil {
			return d, &Left{err}
		}
	case !r.Restart(d):
		return d, &Left{&Untold{r.Target}}
	default:
		r.Step("waiting for another process of " + r.String() + ": stop the old one and start it again now")
	}
	r.Step("readmit " + r.String())
	d, err = limited(ctx, r.Limit, func(ctx context.Context) (Document, error) { return c.ReadmitUntil(ctx, r.Target, r.Seen) })
	if err != nil {
		return d, &Left{err}
	}
	for _, id := range d.IDs() {
		if e := d.Engines[id]; (r.All || id == r.IID) && e.Old != nil && e.New != nil && *e.Old == *e.New {
			return d, &Same{id}
		}
	}
	return d, nil
}

func limited(ctx context.Context, limit time.Duration, do func(context.Context) (Document, error)) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Intervals of waiting.
const (
	lookInterval  = 500 * time.Millisecond
	retryInterval = 5 * time.Second // a try is a validation, and leaves an event
)

// Late is a wait whose limit came first.
type Late struct {
	For  string
	Last error // of the last look or try, nil without one
}

func (e *Late) Error() string {
	if e.Last == nil {
		return "waited too long for " + e.For
	}
	return fmt.Sprintf("waited too long for %s: %v", e.For, e.Last)
}

func (e *Late) Unwrap() error { return e.Last }

// Stuck is a drain that does not end by itself.
type Stuck struct{ Reason string }

func (e *Stuck) Error() string { return e.Reason }

// Seen is told of each document that a wait reads.
type Seen func(Document)

// WaitReady waits until the target may be stopped. A router that does not answer is asked
// again: another one may take over. The end of ctx is a *Late with its limit, else its cause.
func (c *Client) WaitReady(ctx context.Context, t Target, seen Seen) (Document, error) {
	var last Document
	var failed error
	for {
		d, err := c.Look(ctx)
		var lost *Unreachable
		switch {
		case err == nil && t.find(d) != nil:
			return d, t.find(d)
		case err == nil:
			last, failed = d, nil
			seen(d)
			switch {
			case t.Ready(d):
				return d, nil
			case !t.Held(d):
				return d, &Stuck{t.String() + " is not held any more: another order took it back"}
			case t.Blocked(d) != "":
				return d, &Stuck{t.Blocked(d)}
			}
		case errors.As(err, &lost):
			if ctx.Err() == nil {
				failed = err
			}
		default:
			return last, err
		}
		if err := pause(ctx, lookInterval); err != nil {
			return last, late(err, t.String()+" to be ready to stop", failed)
		}
	}
}

// ReadmitUntil tries to take the target back until it is taken, as long as it stays held. An engine
// that needs a new profile ends it: *Outdated.
func (c *Client) ReadmitUntil(ctx context.Context, t Target, seen Seen) (Document, error) {
	var last Document
	var failed error
	for {
		d, err := c.Readmit(ctx, t)
		var lost *Unreachable
		switch {
		case err == nil:
			return d, nil
		case conflicted(err) && t.Held(d):
			last, failed = d, err
			if why := t.Blocked(d); why != "" {
				failed = errors.New(why)
			}
			seen(d)
			if old := t.Outdated(d); old != nil {
				return d, old
			}
		case errors.As(err, &lost):
			if ctx.Err() == nil {
				failed = err
			}
		default:
			return d, err
		}
		if err := pause(ctx, retryInterval); err != nil {
			return last, late(err, t.String()+" to return", failed)
		}
	}
}

// late tells the limit of a wait from the end of the command.
func late(err error, what string, last error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &Late{what, last}
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// takeOut orders a drain, and waits for its end where that is asked.
func (a *app) takeOut(cmd *cobra.Command, f *engineFlags, args []string, deadline time.Duration) error {
	return a.ordered(cmd, f, args, func(ctx context.Context, r *reached, t lifecycle.Target) (lifecycle.Document, error) {
		d, err := bounding(ctx, f.timeout, func(ctx context.Context) (lifecycle.Document, error) { return r.Drain(ctx, t, deadline) })
		if err != nil || !f.wait {
			return d, err
		}
		stored := d.Stored
		d, err = bounding(ctx, f.timeout, func(ctx context.Context) (lifecycle.Document, error) { return r.WaitReady(ctx, t, a.watch(t)) })
		d.Stored = stored
		return d, err
	})
}

// takeBack orders a readmission, once or until it is carried out.
func (a *app) takeBack(cmd *cobra.Command, f *engineFlags, args []string) error {
	return a.ordered(cmd, f, args, func(ctx context.Context, r *reached, t lifecycle.Target) (lifecycle.Document, error) {
		return bounding(ctx, f.timeout, func(ctx context.Context) (lifecycle.Document, error) {
			if f.wait {
				return r.ReadmitUntil(ctx, t, a.watch(t))
			}
			return r.Readmit(ctx, t)
		})
	})
}

// ordered reaches the router, gives an order and shows what became of its target.
func (a *app) ordered(cmd *cobra.Command, f *engineFlags, args []string, do func(context.Context, *reached, lifecycle.Target) (lifecycle.Document, error)) error {
	t, err := f.target(cmd, args)
	if err != nil {
		return err
	}
	r, err := f.reach(cmd, a, true)
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := do(cmd.Context(), r, t)
	if d.Engines != nil {
		o := orderOf(cmd.Name(), r.url, t, d)
		a.result = &result{data: o, text: o.print}
	}
	if err != nil {
		return r.problem(cmd.Context(), cmd.Name(), t, d, err)
	}
	return nil
}

// bounding bounds one part of an order.
func bounding(ctx context.Context, limit time.Duration, do func(context.Context) (lifecycle.Document, error)) (lifecycle.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// watch tells of a wait on standard error, where something has changed and now and then.
func (a *app) watch(t lifecycle.Target) lifecycle.Seen {
	told, at := "", time.Time{}
	return func(d lifecycle.Document) {
		says := progressOf(t, d)
		if says == told && time.Since(at) < heartbeat {
			return
		}
		told, at = says, time.Now()
		fmt.Fprintf(a.err, "narwhal: %s\n", cell(says))
	}
}

func progressOf(t lifecycle.Target, d lifecycle.Document) string {
	ready, all, prefill, decode := 0, 0, 0, 0
	for id, e := range d.Engines {
		if !t.All && id != t.IID {
			continue
		}
		all++
		if e.Ready {
			ready++
		}
		prefill, decode = prefill+e.Resident.Prefill, decode+e.Resident.Decode
	}
	state := fmt.Sprintf("%d of %d engines may be stopped", ready, all)
	if !t.All {
		state = t.IID + " is " + d.Engines[t.IID].State
	}
	if why := t.Blocked(d); why != "" {
		state += " (" + why + ")"
	}
	return fmt.Sprintf("%s, in flight: %d prefill, %d decode", state, prefill, decode)
}

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Measure sweeps engines, one a device at a time, and names the process that each was. Engines that
// fail do not end the others.
func (d *Direct) Measure(ctx context.Context, only []string) (Profiling, error) {
	out := Profiling{Engines: map[string]Measured{}, Failed: map[string]error{}}
	for _, a := range d.run(ctx, d.sweeps(only), d.sweep) {
		var m Measured
		if a.err == nil {
			a.err = json.Unmarshal(a.data, &m)
		}
		if a.err != nil {
			out.Failed[a.step.Engine] = a.err
			continue
		}
		out.Engines[a.step.Engine] = m
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	return out, nil
}

// sweeps are the steps that measure.
func (d *Direct) sweeps(only []string) []gates.Step {
	return d.steps(func(k record.Key) bool {
		return k.Kind() == "profile" && (len(only) == 0 || slices.Contains(only, k.Subjects()[0]))
	})
}

// Measures are the engines that Measure asks, in the fleet's order: those that answer together with
// the measured ones as well.
func (d *Direct) Measures(only []string) []string {
	asked := map[string]bool{}
	for _, s := range d.sweeps(only) {
		for _, e := range enginesOf(s) {
			asked[e] = true
		}
	}
	return slices.DeleteFunc(d.Fleet.EngineIDs(), func(e string) bool { return !asked[e] })
}

// sweep measures one engine, which must be one process from first to last.
func (d *Direct) sweep(ctx context.Context, s gates.Step) ([]byte, error) {
	id, err := d.identity(ctx, s.Engine)
	if err != nil {
		return nil, fmt.Errorf("read which process it is: %w", err)
	}
	m := Measured{Version: id.Version, ProcessStart: id.ProcessStart}
	if m.Generation, err = d.Generation(ctx, s.Engine, id); err != nil {
		return nil, err
	}
	b, err := d.ask(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &m.Points); err != nil {
		return nil, err
	}
	after, err := d.identity(ctx, s.Engine)
	if err != nil {
		return nil, fmt.Errorf("read which process it is: %w", err)
	}
	if !after.Same(id) {
		return nil, errors.New("its process changed while it was measured")
	}
	return json.Marshal(m)
}

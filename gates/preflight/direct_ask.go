package preflight

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// ask has the sidecars vouch for the engines, and holds the profile store against the processes.
func (x *checkup) ask(ctx context.Context) error {
	for i, e := range x.Fleet.Engines {
		l, answered := x.looks[e.IID]
		if !x.names(e.IID) {
			continue
		}
		if !answered || l.Failed[checkIdentity] != "" || l.Failed[checkReach] != "" {
			if e.AttestationURL != "" {
				x.line(Check{Check: "attestation", Engine: e.IID, State: CheckSkipped, Says: "its process is not known"})
			}
			if x.Store != nil {
				x.line(Check{Check: "profile", Engine: e.IID, State: CheckSkipped, Says: "its process is not known"})
			}
			continue
		}
		id := engine.Identity{Version: l.Version, ProcessStart: l.Started}
		vouched := x.attested(ctx, e, id)
		live, why := "", "its sidecar does not vouch for its process"
		if vouched {
			live, why = x.generation(ctx, e.IID, id)
		}
		x.out.Engines[i].Generation = live
		if x.Store != nil {
			if err := x.bound(e.IID, live, why); err != nil {
				return err
			}
		}
	}
	if x.Store == nil {
		x.line(Check{Check: "profiles", State: CheckSkipped, Says: "there is no store at " + x.Fleet.Profiles.Path})
		return nil
	}
	x.found = append(x.found, judgeStrangers(x.Fleet, *x.Store)...)
	x.line(Check{Check: "profiles", Says: fmt.Sprintf("%d rows", len(x.Store.Rows)), key: StoreKey})
	return nil
}

// attested asks an engine's sidecar, where it has one.
func (x *checkup) attested(ctx context.Context, e fleet.Engine, id engine.Identity) bool {
	if e.AttestationURL == "" || x.Attest == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	c := Check{Check: "attestation", Engine: e.IID, Says: "its sidecar attests this process", key: attestKey(e.IID)}
	err := x.Attest(ctx, e.IID, id)
	if err != nil {
		f := &finder{fleet: x.Fleet, engine: e.IID, evidence: c.key}
		c.Says = ""
		f.add("engine-unattested", "a sidecar that attests this process", engine.Printable(err.Error(), longText), "the engine or its sidecar was restarted, or another contract is declared: narwhal attest serve is the sidecar")
		x.found = append(x.found, f.found...)
		x.suspect[e.IID] = f.found[0].Code
	}
	x.line(c)
	return err == nil
}

// generation is what a profile of the process is bound to, or why that is not known.
func (x *checkup) generation(ctx context.Context, e string, id engine.Identity) (live, why string) {
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	live, err := x.Generation(ctx, e, id)
	if err != nil {
		return "", engine.Printable(err.Error(), longText)
	}
	return live, ""
}

// bound holds an engine's row against its live generation, and its points against the limits.
func (x *checkup) bound(e, live, why string) (err error) {
	c := Check{Check: "profile", Engine: e, key: ProfileKey(e)}
	if live == "" {
		c.State, c.Says = CheckSkipped, why
		x.line(c)
		return nil
	}
	found := judgeBound(x.Fleet, e, *x.Store, live)
	if len(found) > 0 {
		x.found = append(x.found, found...)
		x.line(c)
		return nil
	}
	row, _ := x.Store.Row(e)
	if m, ok := x.pointsOf(row); ok {
		if x.evidence[ProfileKey(e)], err = json.Marshal(m.Points); err != nil {
			return err
		}
		c.Says = fmt.Sprintf("of this process, with %d samples", len(m.Points.Samples.Prefill)+len(m.Points.Samples.Decode))
	} else {
		x.found = append(x.found, judgeRow(x.Fleet, row, x.looks[e])...)
		c.Says = "of this process"
	}
	x.line(c)
	return nil
}

// pointsOf are the samples of the row, and not of another measurement.
func (x *checkup) pointsOf(row profile.Row) (Measured, bool) {
	if x.Samples == nil {
		return Measured{}, false
	}
	m, ok := x.Samples.Engines[row.IID]
	if !ok || !row.Bound(m.Generation) {
		return Measured{}, false
	}
	fitted, err := m.Points.row(row.IID, m.Generation)
	return m, err == nil && fitted.Curve() == row.Curve()
}

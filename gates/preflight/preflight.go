// Package preflight is gate F: latency curves are fitted from live measurements and
// every directed pair of engines hands KV over correctly.
//
// It promises that a pair passes only when the tokens after a handoff equal those of an
// unsplit run and the counters show that KV moved. It refuses to reuse a handoff and to
// measure an engine that another step of the plan is using.
package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Gate is gate F.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "F", Name: "preflight", Title: "Preflight", Promise: "curves fit and every pair hands KV over"}
}

// ProfileKey names an engine's measurements.
func ProfileKey(e string) record.Key { return record.NewKey("F", "profile", e) }

func pairKey(p, d string) record.Key { return record.NewKey("F", "pair", p, d) }

// Expect wants a profile an engine and every directed pair.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	ids := f.EngineIDs()
	for _, e := range ids {
		keys = append(keys, ProfileKey(e))
	}
	for _, p := range ids {
		for _, d := range ids {
			if p != d {
				keys = append(keys, pairKey(p, d))
			}
		}
	}
	return append(keys, StoreKey)
}

// Plan profiles the wanted engines and probes the wanted pairs. An engine takes part in
// one step at a time; disjoint engines are measured at once.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	f := v.Fleet
	prof := f.Deploy.Profile
	for _, e := range f.Engines {
		if !v.Wants(ProfileKey(e.IID)) {
			continue
		}
		h := f.HostOf(e.IID)
		p.Steps = append(p.Steps, gates.Step{
			ID: "F/profile/" + e.IID, Title: "profile engine " + e.IID, Host: h, Engine: e.IID, Effect: gates.Observe, Yields: ProfileKey(e.IID),
			Limit: fleet.Duration(30 * time.Minute), Exclusive: []string{"engine:" + e.IID},
			Argv: gates.HostCommand(f, h, "engine-profile", ProfileRequest{IID: e.IID, URL: e.URL, Model: f.Model, Seed: f.Deploy.Trial.Seed, Points: prof}),
		})
	}
	if v.Wants(StoreKey) || len(p.Steps) > 0 {
		var needs []string
		for _, s := range p.Steps {
			needs = append(needs, s.ID)
		}
		p.Steps = append(p.Steps, gates.Step{
			ID: "F/store", Title: "fit the curves", Effect: gates.Observe, Yields: StoreKey, Limit: fleet.Duration(time.Minute), Needs: needs,
			Local: &gates.LocalCall{Op: "store"},
		})
	}
	for _, e := range directedPairs(f.EngineIDs()) {
		if !v.Wants(pairKey(e[0], e[1])) {
			continue
		}
		from, _ := f.ByID(e[0])
		to, _ := f.ByID(e[1])
		h := f.HostOf(to.IID)
		p.Steps = append(p.Steps, gates.Step{
			ID: fmt.Sprintf("F/pair/%s/%s", from.IID, to.IID), Title: fmt.Sprintf("hand over %s → %s", from.IID, to.IID), Host: h, Engine: to.IID, Effect: gates.Observe,
			Yields: pairKey(from.IID, to.IID), Limit: fleet.Duration(5 * time.Minute), Exclusive: []string{"engine:" + from.IID, "engine:" + to.IID},
			Argv: gates.HostCommand(f, h, "handoff", HandoffRequest{Dialect: f.Engine.Dialect, Model: f.Model, Prefill: from.URL, Decode: to.URL, From: from.IID, To: to.IID, Tokens: prof.PairTokens}),
		})
	}
	return p, nil
}

// directedPairs orders directed pairs so that disjoint ones stand together.
func directedPairs(ids []string) [][2]string {
	var out [][2]string
	n := len(ids)
	for shift := 1; shift < n; shift++ {
		for i := range ids {
			out = append(out, [2]string{ids[i], ids[(i+shift)%n]})
		}
	}
	return out
}

// Facts are none: profiles and pairs rest on the facts of the engines.
func (Gate) Facts(record.Key, []byte) map[string]string { return nil }

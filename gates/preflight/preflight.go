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
	"slices"
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

// LookKey names what an engine says of itself.
func LookKey(e string) record.Key { return record.NewKey("F", "engine", e) }

// AbortKey names the abort drill of an engine, LeaseKey that of its handoffs' lease.
func AbortKey(e string) record.Key { return record.NewKey("F", "abort", e) }

// LeaseKey is expected where deploy.profile.lease_drill asks for it.
func LeaseKey(e string) record.Key { return record.NewKey("F", "lease", e) }

func pairKey(p, d string) record.Key { return record.NewKey("F", "pair", p, d) }

// Expect wants the checks of each engine, its profile, and every directed pair.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	ids := f.EngineIDs()
	for _, e := range ids {
		keys = append(keys, LookKey(e), AbortKey(e), ProfileKey(e))
		if f.Deploy != nil && f.Deploy.Profile.LeaseDrill {
			keys = append(keys, LeaseKey(e))
		}
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

// Plan checks and profiles the wanted engines and probes the wanted pairs. A device takes part
// in one step at a time; what shares none is measured at once.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	var profiles []string
	for _, e := range v.Fleet.Engines {
		for _, s := range engineSteps(v.Fleet, e) {
			if v.Wants(s.Yields) {
				p.Steps = append(p.Steps, s)
				if s.Yields == ProfileKey(e.IID) {
					profiles = append(profiles, s.ID)
				}
			}
		}
	}
	if v.Wants(StoreKey) || len(profiles) > 0 {
		p.Steps = append(p.Steps, gates.Step{
			ID: "F/store", Title: "fit the curves", Effect: gates.Observe, Yields: StoreKey, Limit: fleet.Duration(time.Minute), Needs: profiles,
			Local: &gates.LocalCall{Op: "store"},
		})
	}
	for _, e := range directedPairs(v.Fleet.EngineIDs()) {
		if v.Wants(pairKey(e[0], e[1])) {
			p.Steps = append(p.Steps, pairStep(v.Fleet, e[0], e[1]))
		}
	}
	return p, nil
}

// engineSteps are the steps of one engine in their order.
func engineSteps(f fleet.Fleet, e fleet.Engine) []gates.Step {
	h := f.HostOf(e.IID)
	prof := f.Deploy.Profile
	step := func(key record.Key, title string, limit time.Duration, verb string, request any) gates.Step {
		return gates.Step{ID: string(key), Title: title + " " + e.IID, Host: h, Engine: e.IID, Effect: gates.Observe, Yields: key,
			Limit: fleet.Duration(limit), Exclusive: devices(e), Argv: gates.HostCommand(f, h, verb, request)}
	}
	drill := DrillRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model, Tokens: prof.PairTokens}
	lease := drill
	lease.LimitS = leaseLimit.Seconds()
	out := []gates.Step{
		step(LookKey(e.IID), "check engine", 5*time.Minute, "engine-look", LookRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model,
			Seed: f.Deploy.Trial.Seed, PaceTokens: slices.Max(append([]int{1}, prof.PrefillTokens...))}),
		step(LeaseKey(e.IID), "let a handoff expire on", 2*leaseLimit, "lease-drill", lease),
		step(AbortKey(e.IID), "abort a request on", 5*time.Minute, "abort-drill", drill),
		step(ProfileKey(e.IID), "profile engine", 30*time.Minute, "engine-profile", ProfileRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model, Seed: f.Deploy.Trial.Seed, Points: prof}),
	}
	if !prof.LeaseDrill {
		out = slices.Delete(out, 1, 2)
	}
	return out
}

func pairStep(f fleet.Fleet, p, d string) gates.Step {
	from, _ := f.ByID(p)
	to, _ := f.ByID(d)
	h := f.HostOf(d)
	prof := f.Deploy.Profile
	exclusive := devices(from)
	for _, x := range devices(to) {
		if !slices.Contains(exclusive, x) {
			exclusive = append(exclusive, x)
		}
	}
	return gates.Step{
		ID: fmt.Sprintf("F/pair/%s/%s", p, d), Title: fmt.Sprintf("hand over %s → %s", p, d), Host: h, Engine: d, Effect: gates.Observe,
		Yields: pairKey(p, d), Limit: fleet.Duration(10 * time.Minute), Exclusive: exclusive,
		Argv: gates.HostCommand(f, h, "handoff", HandoffRequest{Dialect: f.Engine.Dialect, Model: f.Model, Prefill: from.URL, Decode: to.URL, From: p, To: d,
			Tokens: prof.PairTokens, Long: slices.Max(append([]int{0}, prof.PrefillTokens...)), Firsts: firstSamples}),
	}
}

// Bounds of the plan.
const (
	leaseLimit   = 10 * time.Minute
	firstSamples = 2
)

// devices are what a step on an engine must have to itself: the engine, and the device that
// it shares with others.
func devices(e fleet.Engine) []string {
	out := []string{"engine:" + e.IID}
	if e.SharedDevice != nil {
		out = append(out, "device:"+e.SharedDevice.Group)
	}
	return out
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

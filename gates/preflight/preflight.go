// Package preflight is gate F: latency curves are fitted from live measurements and
// every directed pair of engines that the fleet file asks for hands KV over correctly.
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

// attestKey is of what a sidecar says to a check; no run records it.
func attestKey(e string) record.Key { return record.NewKey("F", "attested", e) }

func pairKey(p, d string) record.Key { return record.NewKey("F", "pair", p, d) }

// Expect wants the checks of each engine, its profile, and the pairs that deploy.profile.pairs names.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	var keys []record.Key
	ids := f.EngineIDs()
	for _, e := range ids {
		keys = append(keys, LookKey(e), AbortKey(e), ProfileKey(e))
		if f.Deploy != nil && f.Deploy.Profile.LeaseDrill {
			keys = append(keys, LeaseKey(e))
		}
	}
	for _, p := range f.HandoffPairs() {
		keys = append(keys, pairKey(p[0], p[1]))
	}
	engines, _ := drilledOf(f)
	for _, e := range engines {
		keys = append(keys, RestartKey(e.IID))
	}
	return append(keys, StoreKey)
}

// Plan checks and profiles the wanted engines and probes the wanted pairs. A device takes part
// in one step at a time, and so does a machine of engines that name none; what shares neither is
// measured at once.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	p, err := planned(v.Fleet, v.Wants)
	for i := range p.Steps {
		alone(v, &p.Steps[i])
	}
	return p, err
}

func planned(f fleet.Fleet, wants func(record.Key) bool) (gates.Plan, error) {
	var p gates.Plan
	var profiles, drills []string
	restarts, _ := drilledOf(f)
	for _, e := range restarts {
		if !wants(RestartKey(e.IID)) {
			continue
		}
		s, err := restartStep(f, e)
		if err != nil {
			return p, err
		}
		p.Steps, drills = append(p.Steps, s), append(drills, s.ID)
	}
	for _, e := range f.Engines {
		for _, s := range engineSteps(f, e) {
			if wants(s.Yields) {
				s.Needs = drills // what is measured is the process that stays
				p.Steps = append(p.Steps, s)
				if s.Yields == ProfileKey(e.IID) {
					profiles = append(profiles, s.ID)
				}
			}
		}
	}
	if wants(StoreKey) || len(profiles) > 0 {
		p.Steps = append(p.Steps, gates.Step{
			ID: "F/store", Title: "fit the curves", Effect: gates.Observe, Yields: StoreKey, Limit: fleet.Duration(time.Minute), Needs: profiles,
			Local: &gates.LocalCall{Op: "store"},
		})
	}
	for _, e := range f.HandoffPairs() {
		if wants(pairKey(e[0], e[1])) {
			s := pairStep(f, e[0], e[1])
			s.Needs = drills
			p.Steps = append(p.Steps, s)
		}
	}
	return p, nil
}

// engineSteps are the steps of one engine in their order.
func engineSteps(f fleet.Fleet, e fleet.Engine) []gates.Step {
	h := f.HostOf(e.IID)
	prof := f.Deploy.Profile
	peer, exclusive := together(f, e)
	step := func(key record.Key, title string, limit time.Duration, verb string, request any) gates.Step {
		return withKey(f, gates.Step{ID: string(key), Title: title + " " + e.IID, Host: h, Engine: e.IID, Effect: gates.Observe, Yields: key,
			Limit: fleet.Duration(limit), Exclusive: exclusive, Argv: gates.HostCommand(f, h, verb, request)})
	}
	drill := DrillRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model, Tokens: prof.PairTokens, Key: f.Engine.EngineAPIKeyEnv}
	drill.Peer = peer
	lease := drill
	lease.LimitS = leaseLimit.Seconds()
	out := []gates.Step{
		step(LookKey(e.IID), "check engine", 5*time.Minute, "engine-look", LookRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model,
			Seed: f.Deploy.Trial.Seed, PaceTokens: slices.Max(append([]int{1}, prof.PrefillTokens...)), Peer: peer, Key: f.Engine.EngineAPIKeyEnv}),
		step(LeaseKey(e.IID), "let a handoff expire on", 2*leaseLimit, "lease-drill", lease),
		step(AbortKey(e.IID), "abort a request on", 5*time.Minute, "abort-drill", drill),
		step(ProfileKey(e.IID), "profile engine", 30*time.Minute, "engine-profile", ProfileRequest{IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model, Seed: f.Deploy.Trial.Seed, Points: prof, Peer: peer, Key: f.Engine.EngineAPIKeyEnv}),
	}
	if !prof.LeaseDrill {
		out = slices.Delete(out, 1, 2)
	}
	return out
}

func pairStep(f fleet.Fleet, p, d string) gates.Step {
	from, _ := f.ByID(p)
	to, _ := f.ByID(d)
	return handoffStep(f, HandoffRequest{From: p, To: d, Long: slices.Max(append([]int{0}, f.Deploy.Profile.PrefillTokens...)), Firsts: firstSamples,
		Switch: concurrent(f) && !from.Pin && !to.Pin && roleOf(from) == roles[0] && roleOf(to) == roles[1]})
}

// handoffStep asks the consumer's host for handoffs of a pair.
func handoffStep(f fleet.Fleet, q HandoffRequest) gates.Step {
	from, _ := f.ByID(q.From)
	to, _ := f.ByID(q.To)
	h := f.HostOf(q.To)
	exclusive := devices(from)
	for _, x := range devices(to) {
		if !slices.Contains(exclusive, x) {
			exclusive = append(exclusive, x)
		}
	}
	q.Dialect, q.Model, q.Prefill, q.Decode, q.Tokens, q.Key = f.Engine.Dialect, f.Model, from.URL, to.URL, f.Deploy.Profile.PairTokens, f.Engine.EngineAPIKeyEnv
	return withKey(f, gates.Step{
		ID: fmt.Sprintf("F/pair/%s/%s", q.From, q.To), Title: fmt.Sprintf("hand over %s → %s", q.From, q.To), Host: h, Engine: q.To, Effect: gates.Observe,
		Yields: pairKey(q.From, q.To), Limit: fleet.Duration(10 * time.Minute), Exclusive: exclusive, Argv: gates.HostCommand(f, h, "handoff", q),
	})
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

// Facts are the processes that a drill launched: all else rests on the facts of the engines.
func (Gate) Facts(key record.Key, data []byte) map[string]string { return restartFacts(key, data) }

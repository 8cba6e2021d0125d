package gates

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// ReplaceOptions says which engines of a serving fleet are replaced, and how.
type ReplaceOptions struct {
	// Engines are in the order in which they are replaced. None goes on with what was begun.
	Engines []string
	Wave    bool // all at once, with admission closed; else one after the other
	Only    bool // a wave of these engines, while the others serve
	Profile bool // measure although the profile holds
	// Back takes an earlier replacement back: that which line Of of the record began, or the
	// newest that was not taken back where Of is 0. No engine means all that it replaced.
	Back  bool
	Of    int64
	Drain fleet.Duration
	// Cut stops an engine whose requests do not end within Drain; else it is left running.
	Cut bool
	// BelowFloor permits what takes the last engine of a role, or more than its floor leaves.
	BelowFloor bool
	// PlanDigest, if set, must begin the digest of the plan.
	PlanDigest string
}

// defaultDrain is how long an engine's requests are waited for.
const defaultDrain = fleet.Duration(5 * time.Minute)

// Outing is what the serving gate is asked to take out of service, and back.
type Outing struct {
	Engines    []string       `json:"engines"`
	All        bool           `json:"all,omitempty"` // they are the whole fleet
	Drain      fleet.Duration `json:"drain"`
	Cut        bool           `json:"cut,omitempty"`
	BelowFloor bool           `json:"below_floor,omitempty"`
}

// TakesOut is implemented by the gate whose router serves.
type TakesOut interface {
	// May says why the engines must not be taken out, nil when they may. It asks the router.
	May(context.Context, Env, Outing) error
	// Out closes the engines' admission and waits for what they have.
	Out(View, Outing) []Step
	// Activate lets the routers that run take up the profiles of the engines.
	Activate(View, Outing) ([]Step, error)
	// Back takes the engines into service again.
	Back(View, Outing) []Step
}

// StopsEngines is implemented by the gate that launches engines.
type StopsEngines interface {
	Stop(View, []string) ([]Step, error)
}

// ReplacePlan is what a replacement will do, as data.
type ReplacePlan struct {
	Digest  string         `json:"digest"`
	Engines []string       `json:"engines"`
	Wave    bool           `json:"wave,omitempty"`
	Only    bool           `json:"only,omitempty"`
	Profile bool           `json:"profile,omitempty"`
	Resumes bool           `json:"resumes,omitempty"`
	Rounds  []ReplaceRound `json:"rounds"`
	// Back says what it takes back, nil for nothing.
	Back *record.WayBack `json:"back,omitempty"`
	// Unowned are processes that it would stop and whose owner nobody can tell.
	Unowned []Unowned `json:"unowned,omitempty"`
	options ReplaceOptions
	// keeps are engines of a way back whose process of before still runs.
	keeps []string
}

// ReplaceRound is the part about engines that are replaced at once. A step of Activate runs
// where the profiles come out other than those that the router has.
type ReplaceRound struct {
	Engines  []string `json:"engines"`
	Out      []Step   `json:"out"`
	Stop     []Step   `json:"stop"`
	Gates    []Plan   `json:"gates"`
	Activate []Step   `json:"activate"`
	Back     []Step   `json:"back"`
	// Profiles come back by their digests, by engine, and are not measured.
	Profiles map[string]string `json:"profiles,omitempty"`
}

// PlanReplace observes and plans; it changes nothing.
func (r *Runner) PlanReplace(ctx context.Context, o ReplaceOptions) (ReplacePlan, error) {
	p, err := r.replaceRequest(o)
	if err != nil {
		return p, err
	}
	r.back = p.Back
	if err := r.settle(ctx); err != nil {
		_, err = r.fail(Outcome{}, err)
		return p, err
	}
	p.keeps = r.stillBefore(p)
	if err := r.replaceable(p); err != nil {
		return p, err
	}
	p.Unowned = r.disown(ctx, r.enginesAsUndos(p.Engines))
	for _, engines := range p.split() {
		if r.isBack(p, engines) {
			continue
		}
		if !r.kept(p, engines) {
			if err := r.mayTakeOut(ctx, p.outing(engines)); err != nil {
				return p, err
			}
		}
		round, err := r.forecastRound(ctx, p, engines)
		if err != nil {
			return p, err
		}
		p.Rounds = append(p.Rounds, round)
	}
	p.Digest = digestOf([]any{p.Engines, p.Wave, p.Only, p.Profile, p.Back, p.options.Drain, p.options.Cut, p.Rounds})
	switch n := len(o.PlanDigest); {
	case n > 0 && n < minDigest:
		return p, problem.New(problem.Invalid, "plan_digest_short", fmt.Sprintf("a plan digest of %d digits names no plan", n), fmt.Sprintf("give at least %d digits of it", minDigest))
	case !strings.HasPrefix(p.Digest, o.PlanDigest):
		return p, problem.New(problem.Refused, "plan_stale", fmt.Sprintf("the plan is now %.12s, approved was %.12s", p.Digest, o.PlanDigest), "look at the new one: narwhal gate replace … --dry-run")
	}
	return p, nil
}

// split are the engines that are replaced at once.
func (p ReplacePlan) split() (out [][]string) {
	if p.Wave {
		return [][]string{p.Engines}
	}
	for _, e := range p.Engines {
		out = append(out, []string{e})
	}
	return out
}

func (p ReplacePlan) outing(engines []string) Outing {
	return Outing{Engines: engines, All: p.Wave && !p.Only, Drain: p.options.Drain, Cut: p.options.Cut, BelowFloor: p.options.BelowFloor}
}

// forecastRound plans the replacement of engines as if they had been stopped.
func (r *Runner) forecastRound(ctx context.Context, p ReplacePlan, engines []string) (ReplaceRound, error) {
	out := ReplaceRound{Engines: engines, Gates: []Plan{}}
	serving, launcher, err := r.replacers()
	if err != nil {
		return out, err
	}
	v, outing := r.view(nil), p.outing(engines)
	if out.Back = serving.Back(v, outing); !r.kept(p, engines) {
		out.Out = serving.Out(v, outing)
	}
	if out.Activate, err = serving.Activate(v, outing); err != nil {
		return out, err
	}
	if r.toStop(p, engines) {
		if out.Stop, err = launcher.Stop(v, engines); err != nil {
			return out, err
		}
	}
	facts := r.currentFacts()
	if len(out.Stop) > 0 {
		for _, e := range engines {
			names, _ := processesOf(r.Fleet, e)
			for _, name := range names {
				facts["proc/"+name+"/id"], facts["proc/"+name+"/launch"] = Gone, Gone
			}
		}
	}
	out.Profiles = p.returning(engines)
	narrow := func(g Gate, needs map[record.Key]string) {
		r.narrowed(p, engines)(g, needs)
		for e := range out.Profiles {
			delete(needs, profileKey(e))
		}
	}
	f, err := r.forecastUnder(ctx, Options{To: "F", narrow: narrow}, facts)
	if err != nil {
		return out, err
	}
	for _, g := range f.Gates {
		if len(g.Plan.Steps) > 0 {
			out.Gates = append(out.Gates, g.Plan)
		}
	}
	return out, nil
}

// replacers are the gates that a replacement needs beside the pipeline's order.
func (r *Runner) replacers() (serving TakesOut, launcher StopsEngines, err error) {
	for _, g := range r.Gates {
		if s, ok := g.(TakesOut); ok {
			serving = s
		}
		if l, ok := g.(StopsEngines); ok {
			launcher = l
		}
	}
	if serving == nil || launcher == nil {
		return nil, nil, fmt.Errorf("plan a replacement: no gate launches engines or serves them")
	}
	return serving, launcher, nil
}

// mayTakeOut asks the router whether engines that it has not taken out yet may go.
func (r *Runner) mayTakeOut(ctx context.Context, o Outing) error {
	serving, _, err := r.replacers()
	if err != nil {
		return err
	}
	return serving.May(ctx, &localEnv{runner: r, step: Step{ID: "G/may", Title: "ask the router"}}, o)
}

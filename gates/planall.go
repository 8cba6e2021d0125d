package gates

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Forecast is what a run would do now: the plans of all gates, under the facts of this
// moment. A gate further down may find more to do once those before it have run.
type Forecast struct {
	Digest string
	Gates  []GateForecast
}

// GateForecast is one gate's part.
type GateForecast struct {
	Info   Info
	State  string
	Plan   Plan
	Needs  map[record.Key]string
	Reuses []record.Key
}

// Forecast observes and plans; it changes neither hosts nor gates.
func (r *Runner) Forecast(ctx context.Context, o Options) (Forecast, error) {
	if err := r.settle(ctx); err != nil {
		_, err := r.fail(Outcome{}, err)
		return Forecast{}, err
	}
	return r.forecast(ctx, o)
}

func (r *Runner) forecast(ctx context.Context, o Options) (Forecast, error) {
	return r.forecastUnder(ctx, o, r.currentFacts())
}

// forecastUnder plans as if the facts were these. It changes them to what the plans would bring about.
func (r *Runner) forecastUnder(ctx context.Context, o Options, facts map[string]string) (Forecast, error) {
	state := r.Record.State()
	var f Forecast
	var plans []Plan
	for _, g := range r.Gates {
		info := g.Info()
		if o.Only != "" && o.Only != info.Letter {
			continue
		}
		needs := Needs(g, r.Fleet, state, facts, r.Record.Load)
		if o.Again[info.Letter] {
			for _, k := range g.Expect(r.Fleet) {
				needs[k] = AskedToRepeat(info.Letter)
			}
		}
		if o.narrow != nil {
			o.narrow(g, needs)
		}
		v := r.view(needs)
		v.Facts = facts
		p, err := g.Plan(ctx, v)
		if err != nil {
			return f, err
		}
		p.Gate = info.Letter
		if err := p.validate(); err != nil {
			return f, err
		}
		gf := GateForecast{Info: info, State: state.Gates[info.Letter].State, Plan: p, Needs: needs}
		for _, k := range g.Expect(r.Fleet) {
			if _, again := needs[k]; !again {
				gf.Reuses = append(gf.Reuses, k)
			}
		}
		f.Gates = append(f.Gates, gf)
		plans = append(plans, p)
		relaunched(state, needs, facts)
		if info.Letter == o.To {
			break
		}
	}
	f.Digest = digestOf(plans)
	return f, nil
}

// relaunched assumes that a process which is gone and will be started again comes back
// with the launch that its evidence is bound to.
func relaunched(s record.State, needs map[record.Key]string, facts map[string]string) {
	facts2 := maps.Clone(facts)
	for k := range needs {
		e, ok := s.Evidence(k)
		if !ok {
			continue
		}
		for name, was := range e.Bonds {
			if strings.HasPrefix(name, "proc/") && strings.HasSuffix(name, "/launch") && facts2[name] == Gone {
				facts[name] = was
			}
		}
	}
}

// minDigest is how many hex digits of a plan's digest approve it.
const minDigest = 12

// keepPlan records what the run is about to do and refuses a plan other than the
// approved one. A run with nothing to do writes nothing.
func (r *Runner) keepPlan(ctx context.Context, o Options) error {
	f, err := r.forecast(ctx, o)
	if err != nil {
		return err
	}
	if n := len(o.PlanDigest); n > 0 && n < minDigest {
		return problem.New(problem.Invalid, "plan_digest_short", fmt.Sprintf("a plan digest of %d digits names no plan", n), fmt.Sprintf("give at least %d digits of it", minDigest))
	}
	if !strings.HasPrefix(f.Digest, o.PlanDigest) {
		return problem.New(problem.Refused, "plan_stale", fmt.Sprintf("the plan is now %.12s, approved was %.12s", f.Digest, o.PlanDigest),
			"look at the new one: narwhal gate plan")
	}
	var plans []Plan
	steps := 0
	for _, g := range f.Gates {
		if g.State == record.GateRunning {
			return nil // cut off: it goes on with the plan that was recorded
		}
		plans = append(plans, g.Plan)
		steps += len(g.Plan.Steps)
	}
	if steps == 0 || r.Record.State().Plan.Digest == f.Digest {
		return nil
	}
	if err := r.takeUp(); err != nil {
		return err
	}
	if _, err := r.Record.SetPlan(f.Digest, steps, mustJSON(plans)); err != nil {
		return writeError(err)
	}
	return nil
}

package gates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// replaceRequest reads what is asked for, or what was begun.
func (r *Runner) replaceRequest(o ReplaceOptions) (ReplacePlan, error) {
	if o.Drain <= 0 {
		o.Drain = defaultDrain
	}
	p := ReplacePlan{Engines: []string{}, Rounds: []ReplaceRound{}, Wave: o.Wave, Only: o.Only, Profile: o.Profile, options: o}
	for _, e := range o.Engines {
		if _, ok := r.Fleet.ByID(e); !ok {
			return p, problem.New(problem.Invalid, "unknown_engine", fmt.Sprintf("the fleet file has no engine %q", clean(e, 128)), "it has "+strings.Join(r.Fleet.EngineIDs(), ", "))
		}
		if !slices.Contains(p.Engines, e) {
			p.Engines = append(p.Engines, e)
		}
	}
	state := r.Record.State()
	if rb := state.Rollback; rb != nil {
		return p, problem.New(problem.Refused, "rollback_unfinished", fmt.Sprintf("a rollback to gate %s was begun and is not finished", rb.To), "finish it first: narwhal gate rollback --to "+rb.To)
	}
	if begun := state.Replacement; begun != nil && (begun.Back != nil || !o.Back) {
		if !goesOn(*begun, p, o) {
			return p, unfinished(*begun)
		}
		p.Engines, p.Wave, p.Only, p.Profile, p.Resumes = begun.Engines, begun.Wave, begun.Only, begun.Profile || o.Profile, true
		if begun.Back != nil {
			if err := r.goOnBack(&p, *begun.Back); err != nil {
				return p, err
			}
		}
	} else if o.Back {
		if err := r.turnBack(&p); err != nil {
			return p, err
		}
	}
	p.Only = p.Only && len(p.Engines) < len(r.Fleet.Engines)
	switch {
	case len(p.Engines) == 0:
		return p, problem.New(problem.Invalid, "invalid_arguments", "no engine is named, and no replacement was begun", "narwhal gate replace IID…; the fleet file has "+strings.Join(r.Fleet.EngineIDs(), ", "))
	case p.Wave && !p.Only && len(p.Engines) < len(r.Fleet.Engines):
		return p, problem.New(problem.Invalid, "wave_partial", fmt.Sprintf("a wave is the whole fleet, and %d of %d engines are named", len(p.Engines), len(r.Fleet.Engines)), "name them all; leave --wave out, and one follows the other; or --only IID,… makes a wave of these")
	case (!p.Wave || p.Only) && r.Fleet.Recovery.EngineRestartPolicy == "whole_wave":
		return p, problem.New(problem.Refused, "whole_wave_only", "recovery.engine_restart_policy is whole_wave: the engines of this fleet restart together only", "name all engines with --wave")
	}
	return p, nil
}

// goesOn reports whether what is asked for is what was begun.
func goesOn(b record.Replacement, p ReplacePlan, o ReplaceOptions) bool {
	same := slices.Equal(slices.Sorted(slices.Values(p.Engines)), slices.Sorted(slices.Values(b.Engines)))
	if b.Back != nil && (o.Of != 0 && o.Of != b.Back.Of || !o.Back && len(p.Engines) > 0) {
		return false
	}
	return same || len(p.Engines) == 0
}

func unfinished(b record.Replacement) *problem.Problem {
	what := "a replacement of"
	if b.Back != nil {
		what = "a way back of"
	}
	return problem.New(problem.Refused, "replacement_unfinished", fmt.Sprintf("%s %s was begun and is not finished", what, clean(strings.Join(b.Engines, ", "), 200)),
		"finish it first: narwhal gate replace; --back takes it back; or narwhal gate rollback ends it")
}

// replacing refuses to run gates over a replacement that is not finished, as long as the router
// lives that it needs.
func (r *Runner) replacing() error {
	b := r.Record.State().Replacement
	if id := r.currentFacts()["proc/"+routerProcess+"/id"]; b == nil || id == "" || id == Gone || id == Silent {
		return nil
	}
	return unfinished(*b)
}

package gates

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// replaceable refuses what is no replacement: of a fleet that does not serve, of engines that
// the run does not know, or beside other changes.
func (r *Runner) replaceable(p ReplacePlan) error {
	state, facts := r.Record.State(), r.currentFacts()
	id, serves := facts["proc/"+routerProcess+"/id"], facts["proc/"+routerProcess+"/serves"] == Serves
	const first = "narwhal gate run brings the fleet up; then replace its engines"
	if state.Gates["G"].Verdict != record.VerdictPassed || id == "" || id == Gone || id == Silent || !serves && state.Replacement == nil {
		return problem.New(problem.Refused, "fleet_not_serving", "the router of this run does not admit requests, so that there is nothing to take an engine out of", first)
	}
	for _, e := range p.Engines {
		was, ok := state.Evidence(record.NewKey("C", "launch", e))
		if !ok {
			return about(e, problem.New(problem.Refused, "engine_not_in_run", fmt.Sprintf("engine %s was launched by no gate of this run", e), "narwhal gate run launches it"))
		}
		if host := r.Fleet.HostOf(e); was.Host != "" && was.Host != host {
			return about(e, problem.New(problem.Refused, "engine_moved", fmt.Sprintf("engine %s runs on host %s, and the fleet file puts it on %s", e, was.Host, host), "roll back to B with the fleet file of before, then narwhal gate run"))
		}
	}
	return r.otherChanges(p, facts)
}

func about(engine string, p *problem.Problem) *problem.Problem {
	p.Engine = engine
	return p
}

// otherChanges refuses a replacement beside evidence that something else has made stale: it
// would end with gates that do not hold.
func (r *Runner) otherChanges(p ReplacePlan, facts map[string]string) error {
	state := r.Record.State()
	for _, g := range r.Gates {
		under := facts
		if g.Info().Letter == "G" { // profiles that were not activated yet are this command's own
			if e, ok := state.Evidence(routerKey); ok {
				under = withFact(facts, profilesActive, startedWith(e))
			}
		}
		needs := Needs(g, r.Fleet, state, under, r.Record.Load)
		for _, k := range sortedKeys(needs) {
			whose := enginesOf(k)
			others := slices.DeleteFunc(slices.Clone(whose), func(e string) bool { return slices.Contains(p.Engines, e) })
			switch {
			case k.Gate() == "G":
				return problem.New(problem.Refused, "other_changes", fmt.Sprintf("gate G does not hold, and not for want of an engine: %s (%s)", needs[k], k), "narwhal gate plan shows what changed; narwhal gate run brings it about first")
			case len(whose) > 0 && len(others) == len(whose):
				return about(others[0], problem.New(problem.Refused, "other_changes", fmt.Sprintf("engine %s is not as its evidence says either: %s (%s)", others[0], needs[k], k),
					"name it too, or narwhal gate run first"))
			}
		}
	}
	return nil
}

func withFact(facts map[string]string, name, value string) map[string]string {
	out := map[string]string{}
	for k, v := range facts {
		out[k] = v
	}
	out[name] = value
	return out
}

// enginesOf are the engines that a piece of evidence of gates C, E and F is about.
func enginesOf(k record.Key) []string {
	subjects := k.Subjects()
	switch {
	case !strings.Contains("CEF", k.Gate()) || len(subjects) == 0:
		return nil
	case k.Gate() == "F" && k.Kind() == "pair":
		return subjects
	}
	return subjects[:1]
}

// narrowed keeps of what gates need the part about engines, and what is about no engine. A plan
// with Profile measures them although their profiles hold, unless that was done since the
// replacement began; a way back wants the profiles of before.
func (r *Runner) narrowed(p ReplacePlan, engines []string) func(Gate, map[record.Key]string) {
	since := int64(math.MaxInt64)
	if b := r.begun(p); b != nil {
		since = b.Seq
	}
	return func(g Gate, needs map[record.Key]string) {
		for k := range needs {
			whose := enginesOf(k)
			if len(whose) > 0 && !slices.ContainsFunc(whose, func(e string) bool { return slices.Contains(engines, e) }) {
				delete(needs, k)
			}
		}
		for _, k := range g.Expect(r.Fleet) {
			if k.Gate() != "F" || k.Kind() != "profile" || !slices.Contains(engines, k.Subjects()[0]) {
				continue
			}
			e, ok := r.Record.State().Evidence(k)
			if want := p.returning(engines)[k.Subjects()[0]]; want != "" && (!ok || e.Ref.SHA256 != want) {
				needs[k] = "the profile of before comes back"
			}
			if p.Profile && (!ok || e.Seq < since) {
				needs[k] = "asked to measure " + k.Subjects()[0] + " again"
			}
		}
	}
}

// processesOf are the processes of an engine, the first rank first, with their hosts.
func processesOf(f fleet.Fleet, engine string) (names, hosts []string) {
	names, hosts = []string{fleet.RankProcess(engine, 0)}, []string{f.HostOf(engine)}
	for i, host := range f.Deploy.Engines[engine].Workers {
		names, hosts = append(names, fleet.RankProcess(engine, i+1)), append(hosts, host)
	}
	return names, hosts
}

// enginesAsUndos names the processes that will be stopped as a rollback does, for their owners.
func (r *Runner) enginesAsUndos(engines []string) (out []UndoStep) {
	for _, e := range engines {
		names, hosts := processesOf(r.Fleet, e)
		for i, name := range names {
			out = append(out, UndoStep{Host: hosts[i], Undo: Undo{Stops: name}})
		}
	}
	return out
}

// toStop reports whether the processes that ran when the replacement began still may run.
func (r *Runner) toStop(p ReplacePlan, engines []string) bool {
	b := r.begun(p)
	facts := r.currentFacts()
	return slices.ContainsFunc(engines, func(e string) bool {
		if b != nil {
			if s, ok := b.Last(e, stageStop); ok && s.Status == record.ReplaceOK {
				return false
			}
			id := facts["proc/"+fleet.RankProcess(e, 0)+"/id"]
			return id != Gone && (id == Silent || id == b.Was[e])
		}
		return !slices.Contains(p.keeps, e) && facts["proc/"+fleet.RankProcess(e, 0)+"/id"] != Gone
	})
}

// begun is the replacement in progress that a plan goes on with, nil for none.
func (r *Runner) begun(p ReplacePlan) *record.Replacement {
	if !p.Resumes {
		return nil
	}
	return r.Record.State().Replacement
}

// isBack reports whether engines of a replacement in progress serve again.
func (r *Runner) isBack(p ReplacePlan, engines []string) bool {
	b := r.begun(p)
	if b == nil {
		return false
	}
	for _, e := range engines {
		if s, ok := b.Last(e, stageBack); !ok || s.Status != record.ReplaceOK {
			return false
		}
	}
	return true
}

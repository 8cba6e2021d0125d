package gates

import (
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// known are the facts that a record speaks of: those observed, and those that fresh
// evidence is bound to, the newer ones last.
func known(s record.State) map[string]string {
	facts := maps.Clone(s.Facts)
	if facts == nil {
		facts = map[string]string{}
	}
	var entries []record.Entry
	for _, g := range s.Gates {
		for _, e := range g.Evidence {
			if !e.Stale {
				entries = append(entries, e)
			}
		}
	}
	slices.SortFunc(entries, func(a, b record.Entry) int { return int(a.Seq - b.Seq) })
	for _, e := range entries {
		maps.Copy(facts, e.Bonds)
	}
	return facts
}

// needs lists the evidence that is missing or stale, with the reason.
func (r *Runner) needs(g Gate) map[record.Key]string {
	return Needs(g, r.Fleet, r.Record.State(), r.currentFacts(), r.Record.Load)
}

// Needs lists the evidence of a gate that is missing or no longer holds under facts. An
// object that is gone or changed is missing.
func Needs(g Gate, f fleet.Fleet, s record.State, facts map[string]string, load func(record.Ref) ([]byte, error)) map[record.Key]string {
	needs := map[record.Key]string{}
	for _, k := range g.Expect(f) {
		e, ok := s.Evidence(k)
		switch {
		case !ok:
			needs[k] = "never recorded"
		case e.Stale:
			needs[k] = e.Because
		default:
			if why := withdrawn(f, e, facts, load); why != "" {
				needs[k] = why
			}
		}
	}
	return needs
}

// withdrawn says why recorded evidence does not hold under facts, "" when it does.
func withdrawn(f fleet.Fleet, e record.Entry, facts map[string]string, load func(record.Ref) ([]byte, error)) string {
	if why := stale(e, facts); why != "" {
		return why
	}
	if why := aged(f, e); why != "" {
		return why
	}
	if _, err := load(e.Ref); err != nil {
		return "its file is missing or changed"
	}
	return ""
}

// currentFacts returns the facts with those that follow from the record.
func (r *Runner) currentFacts() map[string]string {
	r.mu.Lock()
	facts := maps.Clone(r.facts)
	r.mu.Unlock()
	derive(r.Fleet, facts, r.Record.State())
	return facts
}

func (r *Runner) view(needs map[record.Key]string) View {
	return View{Fleet: r.Fleet, Run: r.RunID, Release: r.Release, Holder: r.Holder, Facts: r.currentFacts(), needs: needs, state: r.Record.State(), load: r.Record.Load}
}

package gates

import (
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Stale lists evidence that the runner's present facts withdraw. Facts that were not
// looked at count as unchanged.
func (r *Runner) Stale() map[record.Key]string {
	r.mu.Lock()
	looked := r.facts != nil
	r.mu.Unlock()
	facts := Inputs(r.Fleet, r.Release)
	if looked {
		facts = r.currentFacts()
	}
	return StaleUnder(r.Gates, r.Fleet, r.Record.State(), facts, r.Record.Load)
}

// StaleUnder lists evidence that facts withdraw, whose file is missing or changed, or that
// the fleet of now wants and no run recorded. Bonds to facts that are not given count as unchanged.
func StaleUnder(pipeline []Gate, f fleet.Fleet, s record.State, facts map[string]string, load func(record.Ref) ([]byte, error)) map[record.Key]string {
	out := map[record.Key]string{}
	for _, g := range pipeline {
		for _, k := range g.Expect(f) {
			e, ok := s.Evidence(k)
			if !ok {
				out[k] = "never recorded"
				continue
			}
			if e.Stale {
				continue
			}
			known := e
			known.Bonds = map[string]string{}
			for name, was := range e.Bonds {
				if _, here := facts[name]; here {
					known.Bonds[name] = was
				}
			}
			if why := withdrawn(f, known, facts, load); why != "" {
				out[k] = why
			}
		}
	}
	return out
}

package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Source is one file to merge: rows of a store, and the points that stand beside it or alone.
type Source struct {
	Name    string
	Rows    []profile.Row
	Samples *Samples
}

// Merge joins sources. The points of an engine that stand in several are put together; a row
// without points goes with no other of its engine.
func Merge(model string, sources []Source) (Profiling, error) {
	out := Profiling{Engines: map[string]Measured{}}
	of := map[string]string{} // who brought an engine
	for _, s := range sources {
		if s.Samples == nil {
			continue
		}
		if s.Samples.Model != model {
			return out, fmt.Errorf("merge %s: its points are of model %.64q, the fleet's is %.64q", s.Name, s.Samples.Model, model)
		}
		for e, m := range s.Samples.Engines {
			if was, ok := out.Engines[e]; ok {
				joined, err := was.Join(m)
				if err != nil {
					return out, fmt.Errorf("merge %s and %s: engine %.64q: %w", of[e], s.Name, e, err)
				}
				m = joined
			}
			out.Engines[e], of[e] = m, s.Name
		}
	}
	rows := map[string]profile.Row{}
	for _, s := range sources {
		for _, r := range s.Rows {
			if s.Samples != nil {
				if _, ok := s.Samples.Engines[r.IID]; ok {
					continue // its points say it
				}
			}
			if was, ok := of[r.IID]; ok {
				return out, fmt.Errorf("merge %s and %s: engine %.64q: no points stand beside its row in %s, so that the two cannot be fitted together", was, s.Name, r.IID, s.Name)
			}
			if _, ok := rows[r.IID]; ok {
				return out, fmt.Errorf("merge %s: engine %.64q has several rows", s.Name, r.IID)
			}
			rows[r.IID], of[r.IID] = r, s.Name
			out.Rows = append(out.Rows, r)
		}
	}
	return out, nil
}

package preflight

import (
	"fmt"
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Profiling is what is to be fitted.
type Profiling struct {
	Engines map[string]Measured
	// Rows are of engines of which no points are there.
	Rows []profile.Row
	// Failed says why engines could not be measured.
	Failed map[string]error
}

// FailedIDs are the engines that could not be measured, sorted.
func (p Profiling) FailedIDs() []string { return slices.Sorted(maps.Keys(p.Failed)) }

// Refit takes the points of stored samples, of some engines or of all.
func Refit(f fleet.Fleet, s Samples, only []string) (Profiling, error) {
	out := Profiling{Engines: map[string]Measured{}}
	if s.Model != f.Model {
		return out, fmt.Errorf("its points are of model %.64q, the fleet's is %.64q", s.Model, f.Model)
	}
	for e, m := range s.Engines {
		if len(only) == 0 || slices.Contains(only, e) {
			out.Engines[e] = m
		}
	}
	for _, e := range only {
		if _, ok := out.Engines[e]; !ok {
			return out, fmt.Errorf("it has no points of engine %.64q", e)
		}
	}
	if len(out.Engines) == 0 {
		return out, fmt.Errorf("it has no points of any engine")
	}
	return out, nil
}

// Kept is what stays of an older store where only some engines are measured; nil for nothing.
type Kept struct {
	Store   *profile.Store
	Samples *Samples
}

// Composed is a store and its points.
type Composed struct {
	Store   profile.Store
	Samples Samples
	Fitted  []Fitted
	Kept    []string // engines whose older row stays
	Missing []string // engines of the fleet without a row
	Extra   []string // rows of engines that the fleet does not have
}

// Compose fits and puts new rows in the place of older ones. An engine without a new row keeps its
// older one, which is still of the process that it names.
func Compose(f fleet.Fleet, p Profiling, old Kept, meta map[string]any) Composed {
	c := Composed{Samples: NewSamples(f.Model, meta), Fitted: Fit(f, p.Engines), Kept: []string{}, Missing: []string{}}
	rows := slices.Clone(p.Rows)
	fresh := map[string]bool{}
	for _, r := range rows {
		fresh[r.IID] = true
	}
	for _, x := range c.Fitted {
		if x.Row != nil {
			rows, fresh[x.IID] = append(rows, *x.Row), true
		}
	}
	if old.Samples != nil && old.Samples.Model == f.Model {
		maps.Copy(c.Samples.Engines, old.Samples.Engines)
	}
	maps.Copy(c.Samples.Engines, p.Engines)
	if old.Store != nil {
		for _, r := range old.Store.Rows {
			if !fresh[r.IID] {
				rows, c.Kept = append(rows, r), append(c.Kept, r.IID)
			}
		}
	}
	for _, e := range f.EngineIDs() {
		if !slices.ContainsFunc(rows, func(r profile.Row) bool { return r.IID == e }) {
			c.Missing = append(c.Missing, e)
		}
	}
	for _, r := range rows {
		if _, ok := f.ByID(r.IID); !ok {
			c.Extra = append(c.Extra, r.IID)
		}
	}
	c.Store = profile.NewStore(meta, rows...)
	return c
}

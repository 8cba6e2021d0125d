package control

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// unlike is how many times faster than another an engine must be for it to matter which of the
// two leaves a role.
const unlike = 1.25

// extreme is the slowest or the fastest engine of a role that may leave it; -1 without one.
func (f *forecast) extreme(par Params, snap model.Snapshot, role model.Role, slowest bool) int {
	found, by := -1, 0.0
	for i := range snap.Engines {
		e := &snap.Engines[i]
		if !e.Live || e.Role != role || !leaves(par, e, snap.At, true) {
			continue
		}
		v := f.can(e).prefill
		if found < 0 || slowest && v < by || !slowest && v > by {
			found, by = i, v
		}
	}
	return found
}

// prefer lets another engine than the one with least to lose leave a role first, where engines
// differ in speed and the split beside the current one is projected better that way.
func (f *forecast) prefer(par Params, snap model.Snapshot) {
	for i, role := range []model.Role{model.Prefill, model.Decode} {
		beside := f.p - 1 + 2*i
		if beside < par.MinPrefill || f.p+f.d-beside < par.MinDecode {
			continue
		}
		least := Ratio(-1)
		for _, slowest := range []bool{true, false} {
			k := f.extreme(par, snap, role, slowest)
			if k < 0 {
				break
			}
			other := *f
			other.next[i] = f.can(&snap.Engines[k])
			if a, b := other.next[i].prefill, f.next[i].prefill; math.Max(a/b, b/a) < unlike {
				continue
			}
			if least < 0 {
				least = f.split(beside).Objective
			}
			if c := other.split(beside).Objective; c < least-Ratio(par.Margin) {
				least, f.next[i], f.leaver[i] = c, other.next[i], snap.Engines[k].ID
			}
		}
	}
}

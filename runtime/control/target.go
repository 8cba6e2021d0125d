package control

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Target is the split of the live engines whose busier role has the least to do under the
// demand of the window, whatever the split is now; the fewest prefill engines win a tie. It is
// not ok while the evidence does not suffice for a move.
func (s State) Target(snap model.Snapshot) (prefill int, ok bool) {
	l := measure(snap.Engines, snap.At)
	dem := s.roll(snap.At).demand(snap.Engines, snap.At, s.Params.Window)
	if s.unjudgeable(l, dem) != "" {
		return 0, false
	}
	least := math.Inf(1)
	for p := s.Params.MinPrefill; p <= l.p+l.d-s.Params.MinDecode; p++ {
		if busier := math.Max(dem.Prefill/float64(p), dem.Decode/float64(l.p+l.d-p)); busier < least*(1-1e-9) {
			prefill, least = p, busier
		}
	}
	return prefill, prefill > 0
}

// Toward returns the moves that give a split that number of live prefill engines, those first
// that lose least. Floors hold; what cannot move stays.
func Toward(par Params, snap model.Snapshot, prefill int) (moves []Move) {
	p, d := live(snap.Engines)
	from, n := model.Decode, min(prefill-p, d-par.MinDecode)
	if p > prefill {
		from, n = model.Prefill, min(p-prefill, p-par.MinPrefill)
	}
	for _, i := range donors(par, snap, from, n) {
		moves = append(moves, Move{Engine: snap.Engines[i].ID, To: from.Other(), By: ByTarget, Rule: RuleTarget})
	}
	return moves
}

// donors are at most n engines of a role that may leave it, those first that lose least.
func donors(par Params, snap model.Snapshot, role model.Role, n int) []int {
	if n <= 0 {
		return nil
	}
	found := make([]int, 0, len(snap.Engines))
	for i := range snap.Engines {
		if e := &snap.Engines[i]; e.Live && e.Role == role && leaves(par, e, snap.At, true) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b int) int {
		if lighter(&snap.Engines[a], &snap.Engines[b], snap.At) {
			return -1
		}
		return 1
	})
	return found[:min(n, len(found))]
}

// live counts the live engines of each role.
func live(engines []model.EngineView) (p, d int) {
	for i := range engines {
		switch e := &engines[i]; {
		case !e.Live:
		case e.Role == model.Prefill:
			p++
		default:
			d++
		}
	}
	return p, d
}

// Words of the policies that are there to be compared with.
const (
	ByTarget   = "target"
	RuleTarget = "target_state"
)

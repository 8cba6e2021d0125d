package control

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Ten prompts a second of 0.2 s and nothing to decode ask for all engines but the floor.
func TestTargetFollowsTheDemandAtOnce(t *testing.T) {
	curve := model.EngineView{}.Curve
	curve.C, curve.Intercept, curve.RequestSlope = 0.2, 0.01, 0.001
	curve.MinRequests, curve.MaxRequests, curve.MinKVTokens, curve.MaxKVTokens = 1, 32, 1, 100000
	snap := model.Snapshot{At: 20}
	for i := range 6 {
		role := model.Decode
		if i == 0 {
			role = model.Prefill
		}
		snap.Engines = append(snap.Engines, model.EngineView{ID: string(rune('a' + i)), Role: role, Live: true, Curve: curve, DecodeTokens: 10 - i})
	}
	par := Params{TTFT: 2, TPOT: 0.05, MinPrefill: 1, MinDecode: 1, Window: 120, Step: 5, MinArrivals: 10, DemandFloor: 0.5, EvidenceSpan: 60, Utilization: 0.8}
	s := New(par, 0)
	if _, ok := s.Target(snap); ok {
		t.Fatal("a target without arrivals")
	}
	for i := range 200 {
		s, _ = Step(s, Arrival{At: float64(i) / 10, Input: 100, Wanted: 1})
	}
	p, ok := s.Target(snap)
	if !ok || p != 5 {
		t.Fatalf("target %d %v, want 5", p, ok)
	}
	moves := Toward(par, snap, p)
	if len(moves) != 4 || moves[0].Engine != "f" || moves[0].To != model.Prefill || moves[3].Engine != "c" {
		t.Fatalf("the lightest go first: %+v", moves)
	}
	if back := Toward(par, snap, 1); len(back) != 0 {
		t.Fatalf("nothing to do: %+v", back)
	}
	if floor := Toward(par, snap, 6); len(floor) != 4 {
		t.Fatalf("the floor gives way: %+v", floor)
	}
}

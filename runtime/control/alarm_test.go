package control

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// One of two prefill engines dies right after an evaluation: the next tick judges the split anew,
// and one that others only became lighter in waits for its turn.
func TestADeathIsJudgedAtOnce(t *testing.T) {
	for dies, judged := range map[bool]bool{true: true, false: false} {
		es := fleetOf(2, 6)
		s, _, _ := play(New(lending(), 0), es, 0, 21, 13, 2200, 300)
		last := int(s.lastTick)
		es[0].Live = !dies
		_, moves, log := play(s, es, last+1, last+2, 13, 2200, 300)
		if (len(log) == 1) != judged || judged && (len(moves) == 0 || moves[0].To != model.Prefill) {
			t.Errorf("an engine dies: %v; moves %+v, decisions %+v", dies, moves, log)
		}
	}
}

// At the start, while most requests still run, a move to decode waits for a cooldown: how long their
// answers are is a guess.
func TestAGuessMovesNobody(t *testing.T) {
	for ended, moves := range map[int]bool{20: false, 40: true} {
		p := lending()
		p.Cooldown = 16
		es, s := fleetOf(6, 2), New(p, 0)
		var moved []Move
		for at := range 15 {
			for i := range 60 {
				s, _ = Step(s, Arrival{At: float64(at) + float64(i)/60, Input: 350, Wanted: 200})
				if i < ended {
					s, _ = Step(s, Outcome{Input: 350, Wanted: 200, Output: 200})
				}
			}
			var acts []Action
			s, acts = Step(s, Tick{model.Snapshot{At: float64(at + 1), Engines: es}})
			for _, a := range acts {
				if m, ok := a.(Move); ok {
					moved = append(moved, m)
				}
			}
		}
		if (len(moved) > 0) != moves {
			t.Errorf("%d of 60 have ended: moves %+v", ended, moved)
		}
	}
}

// The cooldown lies between moves. Where engines lend, the first one does not wait for it.
func TestTheFirstMoveNeedsNoCooldown(t *testing.T) {
	p := lending()
	p.Cooldown = 1e6
	es := fleetOf(6, 2)
	_, moves, _ := play(New(p, 0), es, 0, 60, 60, 350, 200)
	if len(moves) == 0 || moves[0].To != model.Decode {
		t.Errorf("moves %+v", moves)
	}
}

package control

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// phases plays two demands that take turns, each for so many seconds, and returns the splits at
// the ends of the phases.
func phases(seconds, turns int, chats, docs [3]int) (s State, splits []int, moves int) {
	es := fleetOf(2, 6)
	s = New(lending(), 0)
	for n := range turns {
		of := chats
		if n%2 == 1 {
			of = docs
		}
		var made []Move
		s, made, _ = play(s, es, n*seconds, (n+1)*seconds, of[0], of[1], of[2])
		splits, moves = append(splits, split(es)), moves+len(made)
	}
	return s, splits, moves
}

// Where no split serves both of two demands and each lasts, the split follows; where one does, or
// where they change faster than roles can, it stays.
func TestWhatLastsIsFollowed(t *testing.T) {
	chats, docs := [3]int{55, 350, 260}, [3]int{8, 8000, 30}
	s, splits, _ := phases(180, 8, chats, docs)
	if !s.trial.Follows {
		t.Errorf("nothing is followed: %v", splits)
	}
	for i := 3; i+1 < len(splits); i += 2 {
		if splits[i]-splits[i+1] < 3 {
			t.Errorf("splits at the ends of phases %v", splits)
		}
	}
	if s, splits, moves := phases(15, 80, chats, docs); s.trial.Follows || moves > 12 {
		t.Errorf("phases of 15 s: %d moves, %v", moves, splits)
	}
	if s, splits, moves := phases(180, 8, [3]int{20, 350, 200}, [3]int{2, 8000, 30}); s.trial.Follows || moves > 6 {
		t.Errorf("one split serves both: %d moves, %v", moves, splits)
	}
}

// Decoding is short of an engine and prefill has one to spare, but only the slow one.
func TestTheBetterEngineLeaves(t *testing.T) {
	es := fleetOf(3, 5)
	es[1].PrefillCorrection, es[1].PrefillFree = 2, 1000 // it has most to lose
	s := New(lending(), 0)
	for i := range 600 {
		s, _ = Step(s, Arrival{At: float64(i) / 60, Input: 512, Wanted: 256})
	}
	snap := model.Snapshot{At: 10, Engines: es}
	lightest, _ := donor(s.Params, snap, model.Prefill, true)
	if lightest == es[1].ID {
		t.Fatal("the slow engine has least to lose")
	}
	f, ok := s.foresee(snap)
	if !ok {
		t.Fatal("no forecast")
	}
	before := f.split(2)
	f.prefer(s.Params, snap)
	if after := f.split(2); f.leaver[0] != es[1].ID || after.Objective >= before.Objective {
		t.Errorf("%q leaves: %+v, before %+v", f.leaver[0], after, before)
	}
	es[1].PrefillCorrection = 1.1
	f, _ = s.foresee(snap)
	if f.prefer(s.Params, snap); f.leaver != [2]string{} {
		t.Errorf("%q leave, and all are much alike", f.leaver)
	}
}

package record

import (
	"strings"
	"testing"
)

// TestReplacementFolds follows a replacement from its start to its end.
func TestReplacementFolds(t *testing.T) {
	var s State
	seq := int64(0)
	add := func(kind Kind, body any) {
		t.Helper()
		seq++
		ev, err := newEvent(kind, "", "", "", body, s.Last)
		if err != nil {
			t.Fatal(err)
		}
		ev.Seq = seq
		s = Fold(s, ev)
	}
	step := func(stage, status string) ReplaceStep {
		return ReplaceStep{Engines: []string{"d1"}, Stage: stage, Status: status}
	}
	add(KindReplaceStep, step("out", ReplaceRunning))
	if s.Replacement != nil {
		t.Error("a stage without a beginning counts")
	}
	add(KindReplaceStarted, ReplaceStarted{Engines: []string{"d1", "d2"}, Was: map[string]string{"d1": "b:1", "d2": "b:2"}})
	before := s
	add(KindReplaceStep, step("out", ReplaceRunning))
	add(KindReplaceStep, step("out", ReplaceOK))
	add(KindReplaceStep, step("stop", ReplaceRunning))
	r := s.Replacement
	if r == nil || len(r.Steps) != 2 || r.Seq != 2 || len(before.Replacement.Steps) != 0 {
		t.Fatalf("%+v, before %+v", r, before.Replacement)
	}
	if last, ok := r.Last("d1", ""); !ok || last.Stage != "stop" || last.Status != ReplaceRunning {
		t.Errorf("last %+v", last)
	}
	if out, ok := r.Last("d1", "out"); !ok || out.Status != ReplaceOK {
		t.Errorf("out %+v", out)
	}
	if _, ok := r.Last("d2", ""); ok {
		t.Error("d2 has a stage")
	}
	ended := Fold(s, mustEvent(t, KindReplaceDone, ReplaceDone{Engines: []string{"d1", "d2"}}))
	undone := Fold(s, mustEvent(t, KindRollbackStarted, RollbackStarted{To: "B"}))
	if ended.Replacement != nil || undone.Replacement != nil || s.Replacement == nil {
		t.Errorf("ended %+v, undone %+v", ended.Replacement, undone.Replacement)
	}
}

// TestLeftLaunches follows what a way back leaves, until it is asked for or rolled back.
func TestLeftLaunches(t *testing.T) {
	var s State
	back := &WayBack{Of: 1, Fleet: Ref{SHA256: strings.Repeat("a", 64)}, From: map[string]string{"d1": "x", "d2": "y"}}
	s = Fold(s, mustEvent(t, KindReplaceStarted, ReplaceStarted{Engines: []string{"d2", "d1"}, Back: back}))
	if len(s.Left.Launches) != 0 {
		t.Errorf("left before its end: %v", s.Left)
	}
	left := Fold(s, mustEvent(t, KindReplaceDone, ReplaceDone{Engines: []string{"d2", "d1"}}))
	if left.Left.Launches["d1"] != "x" || left.Left.Launches["d2"] != "y" || left.Left.Fleet != back.Fleet {
		t.Errorf("left %+v", left.Left)
	}
	asked := Fold(left, mustEvent(t, KindReplaceStarted, ReplaceStarted{Engines: []string{"d1"}}))
	undone := Fold(left, mustEvent(t, KindRollbackStarted, RollbackStarted{To: "B"}))
	if _, ok := asked.Left.Launches["d1"]; ok || asked.Left.Launches["d2"] != "y" || len(undone.Left.Launches) != 0 || len(left.Left.Launches) != 2 {
		t.Errorf("asked %v, undone %v, before %v", asked.Left, undone.Left, left.Left)
	}
}

func mustEvent(t *testing.T, kind Kind, body any) Event {
	t.Helper()
	ev, err := newEvent(kind, "", "", "", body, State{}.Last)
	if err != nil {
		t.Fatal(err)
	}
	ev.Seq = 99
	return ev
}

// TestReplacementBodies refuses what a fold could not follow.
func TestReplacementBodies(t *testing.T) {
	many := make([]string, MaxReplaced+1)
	for what, b := range map[string]checker{
		"no engine":        &ReplaceStarted{},
		"many engines":     &ReplaceDone{Engines: many},
		"no stage":         &ReplaceStep{Engines: []string{"d1"}, Status: ReplaceOK},
		"back to no line":  &ReplaceStarted{Engines: []string{"d1"}, Back: &WayBack{Fleet: Ref{SHA256: strings.Repeat("a", 64)}}},
		"back to no fleet": &ReplaceStarted{Engines: []string{"d1"}, Back: &WayBack{Of: 1}},
		"another status":   &ReplaceStep{Engines: []string{"d1"}, Stage: "out", Status: "perhaps"},
	} {
		if b.check() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

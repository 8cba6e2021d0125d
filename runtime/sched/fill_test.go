package sched

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// In a busy fleet the fuller batch takes a request until it is filled; an idle fleet is used evenly.
func TestBatchesAreFilled(t *testing.T) {
	with := func(id string, residents int) model.EngineView {
		return decoding(engine(id, model.Decode), 100, many(residents, 20)...)
	}
	for name, c := range map[string]struct {
		a, b   int
		unlike func(*model.Snapshot)
		want   string
	}{
		"one decodes already":  {a: 1, b: 0, want: "b"},
		"few decode":           {a: 6, b: 2, want: "b"},
		"many decode":          {a: 60, b: 40, want: "a"},
		"both are filled":      {a: 110, b: 104, want: "b"},
		"roles are fixed":      {a: 60, b: 40, unlike: func(s *model.Snapshot) { s.Params.FixedRoles = true }, want: "b"},
		"the pace breaks":      {a: 60, b: 40, unlike: func(s *model.Snapshot) { s.Engines[1].Correction = 100 }, want: "b"},
		"it has fewer seats":   {a: 30, b: 40, unlike: func(s *model.Snapshot) { s.Engines[1].DecodeSeats = 40 }, want: "a"},
		"a third one is gone":  {a: 6, b: 2, unlike: func(s *model.Snapshot) { s.Engines = append(s.Engines, with("c", 100)); s.Engines[3].Live = false }, want: "b"},
		"a third one has most": {a: 16, b: 2, unlike: func(s *model.Snapshot) { s.Engines = append(s.Engines, with("c", 100)) }, want: "c"},
	} {
		s := snapshot(engine("p", model.Prefill), with("a", c.a), with("b", c.b))
		if c.unlike != nil {
			c.unlike(&s)
		}
		if got := admit(s, request(500, 50), 100); got.Decode != c.want {
			t.Errorf("%s: on %q, want %q: %+v", name, got.Decode, c.want, got.Decodes)
		}
	}
}

package control

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"pgregory.net/rapid"
)

func TestExpect(t *testing.T) {
	s := New(params(), 0)
	if s.Expect(512, 100) != 100 || s.Expect(512, 0) != presumed {
		t.Errorf("without evidence %d and %d", s.Expect(512, 100), s.Expect(512, 0))
	}
	for range 100 {
		s, _ = Step(s, Outcome{Input: 512, Wanted: 1000, Output: 400})
		s, _ = Step(s, Outcome{Input: 512, Output: 70})
		s, _ = Step(s, Outcome{Input: 8000, Output: 700})
		s, _ = Step(s, Outcome{Input: 512, Wanted: 50, Output: 50})
	}
	for _, c := range []struct{ input, wanted, least, most int }{
		{512, 1000, 395, 405}, {512, 0, 70, 95}, {8000, 0, 670, 700}, {512, 50, 48, 50},
		{100, 1000, 400, 450}, // a prompt of another band: as all with such a limit
		{512, 8, 3, 8}, {0, 1, 1, 1},
	} {
		if got := s.Expect(c.input, c.wanted); got < c.least || got > c.most {
			t.Errorf("a prompt of %d tokens, at most %d: %d are expected, want %d to %d", c.input, c.wanted, got, c.least, c.most)
		}
	}
	for range 300 {
		s, _ = Step(s, Outcome{Input: 512, Output: 300})
	}
	if got := s.Expect(512, 0); got < 280 || got > 310 {
		t.Errorf("after a shift %d are expected", got)
	}
}

// An expectation is at least a token, at most what is allowed, and within what was seen.
func TestExpectIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outputs
		longest := presumed
		for range rapid.IntRange(0, 50).Draw(t, "answers") {
			e := Outcome{Input: rapid.IntRange(0, 1<<20).Draw(t, "input"), Wanted: rapid.IntRange(0, 1<<22).Draw(t, "wanted")}
			most := 5000
			if e.Wanted > 0 {
				most = e.Wanted
			}
			e.Output = rapid.IntRange(0, most).Draw(t, "output")
			before := o
			o = o.learn(e)
			if k := capBand(e.Wanted); before.Rows[k] == o.Rows[k] {
				t.Fatal("an older state sees what was learned")
			}
			longest = max(longest, e.Output)
		}
		input, wanted := rapid.IntRange(0, 1<<20).Draw(t, "of input"), rapid.IntRange(0, 1<<22).Draw(t, "of wanted")
		got := o.expect(input, wanted)
		if !(got >= 1) || wanted > 0 && got > float64(wanted)+1e-6 || wanted == 0 && got > float64(longest)+1e-6 {
			t.Fatalf("%v are expected", got)
		}
	})
}

// Answers that nothing limits are priced with what is known when demand is, not when they came;
// until some have been seen, demand is not known.
func TestDemandOfUnlimitedAnswers(t *testing.T) {
	exact, free := New(lending(), 0), New(lending(), 0)
	for i := range 600 {
		at := float64(i) / 20
		exact, _ = Step(exact, Arrival{At: at, Input: 600, Wanted: 300})
		free, _ = Step(free, Arrival{At: at, Input: 600})
	}
	es := fleetOf(2, 6)
	if free.demand(es, 30, 30).Complete {
		t.Error("demand is known although no answer has ended")
	}
	for range 500 {
		free, _ = Step(free, Outcome{Input: 600, Output: 300})
	}
	a, b := exact.demand(es, 30, 30), free.demand(es, 30, 30)
	if !b.Complete || b.Decode < 0.98*a.Decode || b.Decode > 1.02*a.Decode {
		t.Errorf("demand %+v, want %+v", b, a)
	}
	fa, _ := exact.foresee(model.Snapshot{At: 30, Engines: es})
	fb, _ := free.foresee(model.Snapshot{At: 30, Engines: es})
	if x, y := fa.blocks[0].decode, fb.blocks[0].decode; y < 0.98*x || y > 1.02*x {
		t.Errorf("a forecast of %v engines, want %v", y, x)
	}
}

// What an engine is believed to hold of a prompt is not prefilled again.
func TestCachedTokensAreNoDemand(t *testing.T) {
	of := func(cached int) Demand {
		s := New(lending(), 0)
		for i := range 200 {
			s, _ = Step(s, Arrival{At: float64(i) / 20, Input: 4000, Wanted: 60, Cached: cached})
		}
		return s.demand(fleetOf(2, 6), 10, 10)
	}
	c := fleetOf(1, 1)[0].Curve
	cold, warm, whole := of(0), of(3600), of(1<<20)
	if got, want := warm.Prefill/cold.Prefill, c.Warm(4000, 3600)/c.Prefill(4000); got < want-0.02 || got > want+0.02 {
		t.Errorf("with most of the prompt held %v of the demand, want %v", got, want)
	}
	if warm.Decode != cold.Decode || warm.Context != cold.Context {
		t.Errorf("decoding differs: %+v, cold %+v", warm, cold)
	}
	if whole.Prefill < 0 || whole.Prefill > warm.Prefill {
		t.Errorf("more than the prompt held: %+v", whole)
	}
}

package control

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func TestWhatIsLacked(t *testing.T) {
	for why, want := range map[model.Reason]model.Role{
		model.ReasonQueue: model.Prefill, model.ReasonTPOT: model.Decode, model.ReasonSlotWait: model.Decode,
		model.ReasonKVCapacity: model.Decode, model.ReasonPrompt: "", model.ReasonNoEngine: "",
	} {
		if got := Lacked(why); got != want {
			t.Errorf("refused for %s: %q is lacking, want %q", why, got, want)
		}
	}
	par := model.Params{TTFT: 2, TPOT: 0.05}
	for _, c := range []struct {
		prefilled, first, interval float64
		want                       model.Role
	}{
		{1, 1.5, 0.04, ""}, {2, 2, 0.05, ""}, {2.1, 2.2, 0.04, model.Prefill}, {1, 2.1, 0.04, model.Decode},
		{1, 1.5, 0.06, model.Decode}, {2.1, 2.2, 0.06, model.Prefill}, {1, 1, 0, ""},
	} {
		if got := Late(par, c.prefilled, c.first, c.interval); got != c.want {
			t.Errorf("%+v: %q is lacking", c, got)
		}
	}
}

// What lacked prefill lacks it with fewer prefill engines too, and what lacked decoding with more.
func TestExcessByHand(t *testing.T) {
	x := excesses{{Prefill: 4, Offered: doubted, Beyond: [2]float64{100, 50}}, {Prefill: 2, Offered: 3 * doubted, Beyond: [2]float64{0, 400}}}
	for p, want := range map[int]float64{1: 0.1, 2: 0.1 + 0.2, 3: 0.1 + 0.2, 4: 0.1 + 0.2, 5: 0.2} {
		if got := float64(x.beyond(p)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d prefill engines: %g beyond, want %g", p, got, want)
		}
	}
	if (excesses)(nil).beyond(3) != 0 {
		t.Error("nothing was seen and something is beyond")
	}
}

// misses plays traffic that the projection has enough engines for, of which some of each second lack a
// role, until an engine moves.
func misses(s State, es []model.EngineView, from, to, some int, lack model.Role) (State, []Move, []Decision) {
	var moves []Move
	var log []Decision
	for at := from; at < to && len(moves) == 0; at++ {
		for i := range some {
			s, _ = Step(s, Miss{At: float64(at) + float64(i)/float64(some+1), Lack: lack})
		}
		var m []Move
		var d []Decision
		s, m, d = play(s, es, at, at+1, 34, 1500, 100)
		moves, log = append(moves, m...), append(log, d...)
	}
	return s, moves, log
}

// A split that is projected to lose nothing and loses a fourth of the requests is left for one with more of
// what is lacking, and never for one with less.
func TestASplitThatLosesMoreThanProjectedIsLeft(t *testing.T) {
	for _, c := range []struct {
		some int
		lack model.Role
		want func(p int) bool
	}{
		{0, model.Prefill, func(p int) bool { return p == 4 }},
		{9, "", func(p int) bool { return p == 4 }},
		{9, model.Prefill, func(p int) bool { return p > 4 }},
		{9, model.Decode, func(p int) bool { return p < 4 }},
	} {
		es := fleetOf(4, 4)
		_, moves, log := misses(New(lending(), 0), es, 0, 90, c.some, c.lack)
		if !c.want(split(es)) {
			t.Errorf("%d a second lack %q: %d prefill engines after %d moves, %+v", c.some, c.lack, split(es), len(moves), log[len(log)-1])
		}
	}
}

// Nothing is compared until a split has lasted for a span, and what was compared is forgotten when the
// engines are others.
func TestExcessIsOfASplitThatLasted(t *testing.T) {
	p := lending()
	p.Advisory = true
	es := fleetOf(4, 4)
	s, _, _ := misses(New(p, 0), es, 0, 14, 10, model.Prefill)
	if len(s.excess) > 0 {
		t.Errorf("%+v after less than a span", s.excess)
	}
	s, _, _ = misses(s, es, 14, 40, 10, model.Prefill)
	if len(s.excess) != 1 || s.excess[0].Prefill != 4 || s.excess[0].Beyond[0] <= 0 || s.excess[0].Beyond[1] != 0 {
		t.Fatalf("%+v", s.excess)
	}
	before := slices.Clone(s.excess)
	later, _, _ := misses(s, es, 40, 60, 10, model.Prefill)
	if fmt.Sprint(s.excess) != fmt.Sprint(before) || later.excess[0].Offered <= before[0].Offered {
		t.Errorf("%+v became %+v, and %+v after it", before, s.excess, later.excess)
	}
	es[7].Live = false
	if s, _ = Step(later, Tick{model.Snapshot{At: 60.5, Engines: es}}); len(s.excess) > 0 {
		t.Errorf("an engine is gone and %+v is remembered", s.excess)
	}
}

// Before any answer was seen its length is what the client allows, and nothing moves to decode for that
// alone. Requests that lack decoding say that it is so.
func TestDecodingThatLacksIsNoGuess(t *testing.T) {
	for _, c := range []struct {
		some, want int
		lack       model.Role
	}{{0, 6, ""}, {9, 6, model.Decode}, {10, 5, model.Decode}, {10, 6, model.Prefill}} {
		es := fleetOf(6, 2)
		s := New(lending(), 0)
		for i := range 240 {
			s, _ = Step(s, Arrival{At: float64(i) / 60, Input: 350, Wanted: 300})
		}
		for range c.some {
			s, _ = Step(s, Miss{At: 4, Lack: c.lack})
		}
		_, acts := Step(s, Tick{model.Snapshot{At: 4.5, Engines: es}})
		moves := 0
		for _, a := range acts {
			if m, ok := a.(Move); ok && m.To == model.Decode {
				moves++
			}
		}
		if (moves > 0) != (c.want < 6) {
			t.Errorf("%d lack %q: %d moves to decode, %+v", c.some, c.lack, moves, acts)
		}
	}
}

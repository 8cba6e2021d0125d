package control

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func lending() Params {
	p := params()
	p.TTFT, p.TPOT, p.Lends = 4, 0.06, true
	return p
}

// Documents alone ask for most of the fleet: several engines move in one evaluation, at once.
func TestRow29ASureGainMovesSeveralAtOnce(t *testing.T) {
	es := fleetOf(2, 6)
	_, moves, log := play(New(lending(), 0), es, 0, 3, 6, 8000, 30)
	if len(moves) < 2 || split(es) < 4 {
		t.Fatalf("%d moves, %d prefill engines, %+v", len(moves), split(es), log)
	}
	for _, m := range moves {
		if m.To != model.Prefill || m.By != ByReactive || m.Rule != RuleBreach {
			t.Errorf("move %+v", m)
		}
	}
	if d := log[len(log)-1]; d.Engine != moves[0].Engine || d.Loss(d.CurrentPrefill) <= d.Loss(d.Prefill) {
		t.Errorf("decision %+v", d)
	}
}

// Loss is what a decision projects for a split.
func (d Decision) Loss(prefill int) float64 {
	for _, s := range d.Splits {
		if s.Prefill == prefill {
			return float64(s.Loss)
		}
	}
	return math.NaN()
}

// Chats and documents take turns for half a minute each. A split that serves both is found and
// kept, although at any moment another one is better.
func TestWhatComesAndGoesIsRiddenOut(t *testing.T) {
	es := fleetOf(2, 6)
	s := New(lending(), 0)
	late := 0
	for from := 0; from < 1200; from += 30 {
		var moves []Move
		if from%60 == 0 {
			s, moves, _ = play(s, es, from, from+30, 40, 350, 200)
		} else {
			s, moves, _ = play(s, es, from, from+30, 3, 10000, 60)
		}
		if from >= 240 {
			late += len(moves)
		}
	}
	if late > 0 {
		t.Errorf("%d moves after four minutes", late)
	}
	if n := split(es); n < 3 || n > 5 {
		t.Errorf("%d prefill engines", n)
	}
}

// A gain that is no more than the margin moves nobody, nor does a fleet without pressure.
func TestNoMoveWithoutRegret(t *testing.T) {
	for name, c := range map[string]struct {
		rate, input, output int
		change              func(*Params)
	}{
		"no traffic":         {0, 0, 0, nil},
		"a trickle":          {1, 100, 10, nil},
		"well split":         {40, 512, 256, nil},
		"gain below margin":  {6, 8000, 30, func(p *Params) { p.Margin = 50 }},
		"floor of the donor": {6, 8000, 30, func(p *Params) { p.MinDecode = 6 }},
		"advisory":           {6, 8000, 30, func(p *Params) { p.Advisory = true }},
		"dwell":              {6, 8000, 30, func(p *Params) { p.Dwell = 1e6 }},
		"few arrivals":       {6, 8000, 30, func(p *Params) { p.MinArrivals = 1e6 }},
	} {
		p := lending()
		if c.change != nil {
			c.change(&p)
		}
		es := fleetOf(2, 6)
		_, moves, log := play(New(p, 0), es, 0, 60, c.rate, c.input, c.output)
		if len(moves) > 0 && name != "advisory" || split(es) != 2 || len(log) == 0 {
			t.Errorf("%s: moved %+v", name, moves)
		}
	}
}

// Where prefill is short three quarters of what is lost are the longest prompts and the rest is of
// all lengths; where decoding is, all are lost alike.
func TestBlockLosesByHand(t *testing.T) {
	b := block{requests: 10, prefill: 5}
	b.n[2], b.pre[2], b.dec[2] = 8, 1, 2
	b.n[7], b.pre[7], b.dec[7] = 2, 4, 1
	for _, c := range []struct{ prefill, decode, want float64 }{
		{5, 3, 0}, {3, 3, 0.175}, {1, 3, 0.35}, {0.5, 3, 0.675}, {5, 1.5, 0.5}, {1, 1, 1 - 0.65/1.65},
	} {
		if got, _ := b.lost(c.prefill, c.decode); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("prefill %g, decode %g: %g is lost, want %g", c.prefill, c.decode, got, c.want)
		}
	}
	if none, _ := (&block{}).lost(0, 0); none != 0 {
		t.Errorf("nothing arrived and %g is lost", none)
	}
}

// Documents come beside answers for five decode engines. One that stays empty lends half of its time, and at
// most two of the five are planned to: what is lost is that of the largest share at which the answers fit in the
// others. With idle 1 nobody bears a prefill beside a batch.
func TestEmptyEnginesLend(t *testing.T) {
	f := forecast{idle: 1, kept: [lentSteps + 1]float64{1, 1, 1, 1, 1, 1}}
	for decode, gain := range map[float64]bool{0: true, 0.8: true, 1.6: true, 2.8: true, 3.6: true, 4.6: true, 5.4: false, 6: false} {
		b := block{requests: 10, prefill: 4, decode: decode}
		b.n[2], b.dec[2] = 8, decode
		b.n[7], b.pre[7] = 2, 4
		none, _ := b.lost(prefillWorks, 5*decodeWorks)
		want, most := none, 0.0
		for share := 0.0; share <= mostEmpty; share += 1e-4 {
			if lost, asked := b.lost(prefillWorks+bears*share*5, 5*decodeWorks); asked <= filled*(1-share)*5 {
				want, most = lost, share
			}
		}
		less, _ := b.lost(prefillWorks+bears*math.Max(0, most-mostEmpty/(1<<(emptyTries-1)))*5, 5*decodeWorks)
		if got := f.lost(&b, capacity{1, 1}, capacity{5, 5}); got < want-1e-4 || got > less+1e-12 || gain != (got < none) {
			t.Errorf("decode %g: %g is lost of %g, want %g to %g at a share of %g", decode, got, none, want, less, most)
		}
	}
}

// What decode engines can lend, by hand: at half load an empty batch takes a quarter of the pace, so
// a resident gains 0.6 s each second, and a prefill of 0.06 s has to wait until nobody came for 0.1 s.
func TestSpareByHand(t *testing.T) {
	f := forecast{idle: 0.25}
	b := block{requests: 40, prefill: 2.4}
	for _, c := range []struct{ part, load, want float64 }{
		{1, 0.5, 0.06 / (0.06 + math.Expm1(1)/10)},
		{0.5, 0.5, 0.06 / (0.06 + math.Expm1(0.5)/5)},
		{0, 0.5, 0.06 / (0.06 + 0.1)},
		{1, 0.9, 0.06 / (0.06 + math.Expm1(0.6*(1-0.9*0.75)/(0.75*0.1))/10)},
		{1, 1, 0},
		{1, 2, 0},
	} {
		if got := f.spare(&b, c.part, c.load, 4); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("part %g at load %g: %g is to spare, want %g", c.part, c.load, got, c.want)
		}
	}
	full := forecast{idle: 1}
	if full.spare(&b, 1, 0.5, 4) != 0 || f.spare(&block{}, 1, 0.5, 4) != 0 {
		t.Error("an engine that never gains on the promise has time to spare, or one to which nobody came")
	}
	f.kept = [lentSteps + 1]float64{1, 0.96, 0.9}
	if a, b := f.keeps(mostLent/lentSteps/2), f.keeps(1.5*mostLent/lentSteps); math.Abs(a-0.98) > 1e-12 || math.Abs(b-0.93) > 1e-12 {
		t.Errorf("keeps %g and %g of its rate, want 0.98 and 0.93", a, b)
	}
}

// A slow engine counts for what it does.
func TestSlowEnginesAreWeighed(t *testing.T) {
	es := fleetOf(2, 2)
	es[0].PrefillCorrection = 2
	s, _, _ := play(New(lending(), 0), es, 0, 3, 6, 2000, 50)
	f, ok := s.foresee(model.Snapshot{At: 3, Engines: es})
	if want := 1.25/2 + 1.25; !ok || math.Abs(f.now[0].prefill-want) > 1e-9 {
		t.Errorf("prefill engines are worth %g, want %g", f.now[0].prefill, want)
	}
	for i := range es {
		es[i].Live = false
	}
	if _, ok := s.foresee(model.Snapshot{At: 3, Engines: es}); ok {
		t.Error("a forecast without engines")
	}
}

// BenchmarkStep evaluates a full window of all lengths.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{8, 64} {
		for _, curves := range []string{"one curve", "own curves"} {
			b.Run(curves+"/"+map[int]string{8: "8", 64: "64"}[n], func(b *testing.B) {
				es := fleetOf(n/4, n-n/4)
				r := rand.New(rand.NewPCG(1, 2))
				for i := range es {
					if curves == "own curves" {
						es[i].Curve.A *= 1 + r.Float64()
					}
					es[i].Correction, es[i].DecodeRequests, es[i].DecodeTokens = 1+r.Float64()/10, 40, 40000
				}
				s := New(lending(), 0)
				for i := range 120 * 50 {
					s, _ = Step(s, Arrival{At: float64(i) / 50, Input: 1 << (5 + r.IntN(10)), Wanted: 1 + r.IntN(1000)})
				}
				s, _ = Step(s, Outcome{Wanted: 100, Output: 100})
				snap := model.Snapshot{At: 120, Engines: es}
				b.ReportAllocs()
				for b.Loop() {
					if _, acts := Step(s, Tick{snap}); len(acts) == 0 {
						b.Fatal("not evaluated")
					}
				}
			})
		}
	}
}

// A move that the forecast remembers is taken back for a gain of four margins, an older one for one,
// and so is one that was made at once after the start, until it has been held for a while.
func TestTakingBackNeedsMore(t *testing.T) {
	es := fleetOf(4, 4)
	for _, c := range []struct {
		name  string
		to    model.Role
		ago   float64
		since float64 // the start
		best  float64
		held  bool
	}{
		{"back", model.Prefill, 30, 2000, 1.2, true},
		{"back for much", model.Prefill, 30, 2000, 1.05, false},
		{"on", model.Decode, 30, 2000, 1.2, false},
		{"long ago", model.Prefill, 1000, 2000, 1.2, false},
		{"of the start", model.Prefill, 30, 36, 1.2, false},
		{"of the start, held", model.Prefill, 90, 96, 1.2, true},
	} {
		s := New(lending(), 2000-c.since)
		s.lastTo, s.lastMove, s.lastToDecode = c.to, 2000-c.ago, -1e9
		current, best := Score{Prefill: 4, Decode: 4, Objective: 1.3}, Score{Prefill: 3, Decode: 5, Objective: Ratio(c.best)}
		_, acts := s.choose(model.Snapshot{At: 2000, Engines: es}, &forecast{p: 4, d: 4}, current, best, Decision{})
		r, ok := acts[len(acts)-1].(Record)
		if held := ok && r.Decision.Reason == "current split is best"; held != c.held {
			t.Errorf("%s: held %v, want %v (%+v)", c.name, held, c.held, r.Decision)
		}
	}
}

// A start that is far from right is left as soon as there are arrivals to judge by; one that was
// moved, or has stood for a span, waits for its turn, and so does a gain that has to be confirmed.
func TestAWrongStartIsLeftAtOnce(t *testing.T) {
	es := fleetOf(2, 6)
	s, moves, _ := play(New(lending(), 0), es, 0, 2, 6, 8000, 30)
	if len(moves) == 0 || es[2].RoleSince+es[3].RoleSince == 0 && split(es) == 2 {
		t.Fatalf("two seconds of documents moved nobody")
	}
	if _, _, log := play(s, es, 2, 5, 6, 8000, 30); len(log) != 0 {
		t.Errorf("evaluated before its turn after a move: %+v", log)
	}
	es = fleetOf(2, 6)
	s, moves, log := play(New(lending(), 0), es, 0, 15, 3, 512, 30)
	if len(moves) != 0 || len(log) < 14 {
		t.Errorf("%d moves, %d evaluations in the first span", len(moves), len(log))
	}
	if _, _, log := play(s, es, 15, 25, 3, 512, 30); len(log) != 2 {
		t.Errorf("%d evaluations in ten seconds after it, want 2", len(log))
	}
	current, best := Score{Prefill: 2, Decode: 6, Objective: 1.3}, Score{Prefill: 3, Decode: 5, Objective: 1.2}
	s = New(lending(), 0)
	for i, c := range []struct {
		early bool
		run   int
	}{{true, 0}, {false, 1}, {true, 1}, {false, 0}} {
		if s, _ = s.choose(model.Snapshot{At: float64(i), Engines: es}, &forecast{p: 2, d: 6, early: c.early}, current, best, Decision{}); s.run != c.run {
			t.Errorf("evaluation %d: a run of %d, want %d", i, s.run, c.run)
		}
	}
}

// The last interval has what came since the evaluation before, and nothing older.
func TestLastInterval(t *testing.T) {
	es := fleetOf(4, 4)
	s, _, _ := play(New(lending(), 0), es, 0, 40, 5, 2000, 50)
	for i := range 40 {
		s, _ = Step(s, Arrival{At: 40 + float64(i)/8, Input: 500, Wanted: 10})
	}
	f, ok := s.foresee(model.Snapshot{At: 45, Engines: es})
	if !ok || math.Abs(f.last.requests-8) > 0.5 || f.last.n[band(500)] == 0 || f.last.n[band(2000)] > 1 || f.last.arrivals < 38 {
		t.Errorf("the last interval has %+v", f.last)
	}
}

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
	s, _, _ := play(New(lending(), 0), es, 0, 5, 6, 8000, 30)
	_, moves, log := play(s, es, 5, 8, 6, 8000, 30)
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

// The longest prompts are lost first where prefill is short, all alike where decoding is.
func TestBlockLosesByHand(t *testing.T) {
	b := block{requests: 10}
	b.n[2], b.pre[2], b.dec[2] = 8, 1, 2
	b.n[7], b.pre[7], b.dec[7] = 2, 4, 1
	for _, c := range []struct{ prefill, decode, want float64 }{
		{5, 3, 0}, {3, 3, 0.1}, {1, 3, 0.2}, {0.5, 3, 0.6}, {5, 1.5, 0.5}, {1, 1, 0.6},
	} {
		if got := b.lost(c.prefill, c.decode); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("prefill %g, decode %g: %g is lost, want %g", c.prefill, c.decode, got, c.want)
		}
	}
	if none := (&block{}).lost(0, 0); none != 0 {
		t.Errorf("nothing arrived and %g is lost", none)
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

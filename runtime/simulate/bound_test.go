package simulate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// scatter plays arrivals without scheduler or roles: any engine prefills and any decodes,
// as drawn. It returns first-token delays and mean token intervals.
func scatter(t *rapid.T, c Config) (ttft, tpot []float64) {
	engines := make([]*engine, c.Model.Engines)
	var a agenda
	for i := range engines {
		engines[i] = &engine{model: &c.Model, slow: c.Slow, index: i, next: math.Inf(1), ledger: ledger{v: &model.EngineView{}}}
		a.add(engines[i])
	}
	jobs := make([]*job, len(c.Arrivals))
	for n := 0; n < len(jobs) || !math.IsInf(a.first().next, 1); {
		if e := a.first(); n == len(jobs) || e.next <= c.Arrivals[n].At {
			now := e.next
			if j, _, _ := e.fire(); j != nil {
				j.d.addDecode(j, now)
				if j.d != e {
					j.d.stir(now)
					a.fix(j.d)
				}
			}
			e.begin(now)
			a.fix(e)
			continue
		}
		x := c.Arrivals[n]
		jobs[n] = &job{at: x.At, input: x.Input, output: max(1, x.Output), seq: n, p: engines[n%len(engines)], d: engines[rapid.IntRange(0, len(engines)-1).Draw(t, "decode")]}
		jobs[n].p.addPrefill(jobs[n])
		jobs[n].p.stir(x.At)
		a.fix(jobs[n].p)
		n++
	}
	for _, j := range jobs {
		ttft = append(ttft, j.first-j.at)
		tpot = append(tpot, (j.last-j.first)/float64(max(1, j.output-1)))
	}
	return ttft, tpot
}

// TestNothingPassesTheBound sets promises that a busy fleet just keeps, for some or all of
// its requests, and counts them: never more than the bound.
func TestNothingPassesTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Engines: rapid.IntRange(2, 5).Draw(t, "engines"), PrefillAtStart: 1,
			Prefill:    Prefill{B: rapid.SampledFrom([]float64{1e-5, 1e-3, 1e-2}).Draw(t, "b")},
			Decode:     Decode{rapid.SampledFrom([]float64{1e-4, 0.01}).Draw(t, "c"), rapid.SampledFrom([]float64{1e-5, 0.004}).Draw(t, "r"), 1e-7},
			MaxRunning: rapid.IntRange(1, 6).Draw(t, "running"), KVTokens: 1000, Transfer: Transfer{0.001, 0}}
		var arrivals []Arrival
		most := rapid.SampledFrom([]int{1, 4, 60}).Draw(t, "most")
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			arrivals = append(arrivals, Arrival{At: 0, Input: rapid.IntRange(10, 100).Draw(t, "in"), Output: rapid.IntRange(1, most).Draw(t, "out")})
		}
		if rapid.Bool().Draw(t, "apart") {
			for i := range arrivals {
				arrivals[i].At = float64(i) * 0.05
			}
		}
		c := config(m, 1, 1, arrivals...)
		c.Slow = rapid.SampledFrom([]float64{0.9, 1, 1.3}).Draw(t, "slow")
		ttft, tpot := scatter(t, c)
		pick := func(v []float64) float64 {
			v = slices.Sorted(slices.Values(v))
			if rapid.Bool().Draw(t, "all") {
				return v[len(v)-1]
			}
			return v[rapid.IntRange(0, len(v)-1).Draw(t, "quantile")]
		}
		c.Params.TTFT, c.Params.TPOT = pick(ttft), pick(tpot)
		kept := 0
		for i := range ttft {
			if ttft[i] <= c.Params.TTFT && tpot[i] <= c.Params.TPOT {
				kept++
			}
		}
		if got := c.hindsight(); got < kept {
			t.Fatalf("%d kept the promise, the bound is %d", kept, got)
		}
	})
}

// TestBoundByHand: ten prompts of 1 s at once, due in 2 s, on two engines: four fit.
func TestBoundByHand(t *testing.T) {
	m := Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{C: 1}, Decode: Decode{C: 1e-3}, MaxRunning: 8, KVTokens: 1000, Transfer: Transfer{}}
	c := config(m, 2.001, 1, even(0, 1, 10, 10, 1, "")...)
	for i := range c.Arrivals {
		c.Arrivals[i].At = 0
	}
	if got := c.hindsight(); got != 4 {
		t.Errorf("bound is %d, want 4", got)
	}
	c.Params.TTFT = 1
	if got := c.hindsight(); got != 0 {
		t.Errorf("nothing is within 1 s even alone: %d", got)
	}
	c.Params.TTFT = 5.5
	if got := c.hindsight(); got != 10 {
		t.Errorf("all may fit 5.5 s: %d", got)
	}
}

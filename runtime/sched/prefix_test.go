package sched

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func TestCachedTokensDecide(t *testing.T) {
	p0, p1, d0, d1 := engine("p0", model.Prefill), engine("p1", model.Prefill), engine("d0", model.Decode), engine("d1", model.Decode)
	busy := func(e model.EngineView, backlog float64) model.EngineView { e.PrefillFree = 100 + backlog; return e }
	bears := func(e model.EngineView, seconds float64) model.EngineView { e.Later = bearing(seconds); return e }
	loaded := func(e model.EngineView, n int) model.EngineView {
		e.DecodeRequests, e.DecodeTokens, e.DecodeRemaining = n, n*500, n*100
		return e
	}
	pin := func(e model.EngineView) model.EngineView { e.Pinned = true; return e }
	for name, c := range map[string]struct {
		s      model.Snapshot
		cached []int
		lend   float64
		fixed  bool
		p, d   string
	}{
		"the engine that holds it":           {s: snapshot(p0, p1, d0), cached: []int{0, 3968, 0}, p: "p1", d: "d0"},
		"who holds more":                     {s: snapshot(p0, p1, d0), cached: []int{3968, 2000, 0}, p: "p0", d: "d0"},
		"waiting there costs more":           {s: snapshot(p0, busy(p1, 0.5), d0), cached: []int{0, 3968, 0}, p: "p0", d: "d0"},
		"waiting there costs less":           {s: snapshot(p0, busy(p1, 0.2), d0), cached: []int{0, 3968, 0}, p: "p1", d: "d0"},
		"transfer to who holds it":           {s: snapshot(p0, pin(d0), pin(d1)), cached: []int{0, 0, 3968}, lend: 0.1, p: "p0", d: "d1"},
		"whole on a decode engine":           {s: snapshot(p0, p1, bears(d0, 9), bears(d1, 9)), cached: []int{0, 0, 0, 3968}, lend: 0.1, p: "d1", d: "d1"},
		"though a prefill engine has it too": {s: snapshot(p0, bears(d0, 9), bears(d1, 9)), cached: []int{3968, 0, 3968}, lend: 0.1, p: "d1", d: "d1"},
		"residents cannot bear the tail":     {s: snapshot(p0, bears(d0, 9), bears(d1, 0.001)), cached: []int{0, 0, 3968}, lend: 0.1, p: "p0"},
		"residents bear a tail, not all":     {s: snapshot(p0, bears(d0, 0.05)), cached: []int{0, 3968}, lend: 0.1, p: "d0", d: "d0"},
		"the delay to them costs more":       {s: snapshot(p0, bears(loaded(d0, 60), 9)), cached: []int{0, 2048}, lend: 0.1, p: "p0", d: "d0"},
		"nobody lends":                       {s: snapshot(p0, bears(d0, 9)), cached: []int{0, 3968}, p: "p0", d: "d0"},
		"its role is pinned":                 {s: snapshot(p0, pin(bears(d0, 9))), cached: []int{0, 3968}, lend: 0.1, p: "p0", d: "d0"},
		"roles are fixed":                    {s: snapshot(p0, bears(d0, 9)), cached: []int{0, 3968}, lend: 0.1, fixed: true, p: "p0", d: "d0"},
		"instead of a refusal":               {s: snapshot(busy(p0, 9), bears(d0, 9)), cached: []int{0, 3968}, lend: 0.1, p: "d0", d: "d0"},
	} {
		c.s.Params.Lend, c.s.Params.FixedRoles = c.lend, c.fixed
		r := request(4000, 100) // a prefill of 0.32 s
		r.Cached = c.cached
		got := admit(c.s, r, 100)
		if !got.Placed || got.Prefill != c.p || c.d != "" && got.Decode != c.d {
			t.Errorf("%s: %s→%s, refused %q, want %s→%s\n%+v", name, got.Prefill, got.Decode, got.Refused, c.p, c.d, got)
			continue
		}
		for i, e := range c.s.Engines {
			if e.ID == got.Prefill && (got.Cached != c.cached[i] || got.Own != e.Warm(4000, c.cached[i])) {
				t.Errorf("%s: %d cached and %v s", name, got.Cached, got.Own)
			}
		}
	}
}

// What engines hold makes no decision dearer, and zeros change nothing.
func TestCachedTokensNeverCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var engines []model.EngineView
		n := rapid.IntRange(2, 6).Draw(t, "engines")
		var cached []int
		for i := range n {
			e := engine(string(rune('a'+i)), rapid.SampledFrom([]model.Role{model.Prefill, model.Decode}).Draw(t, "role"))
			e.PrefillFree = 100 + rapid.Float64Range(0, 1).Draw(t, "queue")
			if e.Role == model.Decode {
				e.DecodeRequests = rapid.IntRange(0, 30).Draw(t, "residents")
				e.DecodeTokens, e.DecodeRemaining = e.DecodeRequests*300, e.DecodeRequests*50
			}
			if rapid.Bool().Draw(t, "told") {
				e.Later = bearing(rapid.Float64Range(-1, 2).Draw(t, "slack"))
			}
			engines = append(engines, e)
			cached = append(cached, rapid.SampledFrom([]int{0, 0, 512, 1984}).Draw(t, "cached"))
		}
		s := snapshot(engines...)
		s.Params.Open, s.Params.Lend = true, rapid.SampledFrom([]float64{0, 0.9}).Draw(t, "lend")
		r := request(2000, 50)
		cold := admit(s, r, 100)
		r.Cached = make([]int, n)
		if zero := admit(s, r, 100); !reflect.DeepEqual(zero, cold) {
			t.Fatalf("zeros: %+v\nnone: %+v", zero, cold)
		}
		r.Cached = cached
		var x Scratch
		warm := Admit(&s, &r, 100, &x)
		if again := Admit(&s, &r, 100, &x); !reflect.DeepEqual(again.Keep(), admit(s, r, 100).Keep()) {
			t.Fatal("the same request is decided otherwise with the same scratch")
		}
		if warm.Placed != cold.Placed {
			t.Fatalf("placed %v and %v", warm.Placed, cold.Placed)
		}
		// A cost within a part in hardlyMore counts as equal.
		if !warm.OverBudget && !cold.OverBudget && warm.Placed && warm.Parts.Total() > cold.Parts.Total()*(1+3.0/hardlyMore)+2e-6 {
			t.Fatalf("cost %v with cached tokens, %v without\n%+v\n%+v", warm.Parts.Total(), cold.Parts.Total(), warm, cold)
		}
		if math.IsNaN(warm.Price) {
			t.Fatal("no price")
		}
	})
}

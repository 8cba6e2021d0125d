package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func config(m Model, ttft, tpot float64, arrivals ...Arrival) Config {
	c := Defaults(ttft, tpot)
	c.thorough = true
	c.Workload, c.Model, c.Arrivals, c.Seed = "test", m, arrivals, 7
	return c
}

// even adds rate arrivals a second of one shape from second from to second to.
func even(from, to, rate, input, output int, class string) (out []Arrival) {
	for i := range (to - from) * rate {
		out = append(out, Arrival{At: float64(from) + float64(i)/float64(rate), Input: input, Output: output, Class: class})
	}
	return out
}

func shift() Config {
	a := append(even(0, 150, 4, 12000, 40, "doc"), even(150, 350, 55, 350, 200, "chat")...)
	c := config(reference(), 4, 0.06, append(a, even(350, 450, 4, 12000, 40, "doc")...)...)
	c.Compare = true
	return c
}

// TestTwoRequests follows an example by hand: prefill 1 ms a token, a step 10 ms, transfer
// 5 ms, one engine of each role. A prefills 0–0.1, joins at 0.105, tokens at 0.115, 0.125,
// 0.135. B waits until 0.1, prefills to 0.3, joins at 0.305, tokens at 0.315 and 0.325.
func TestTwoRequests(t *testing.T) {
	m := Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000, Transfer: Transfer{Base: 0.005}}
	c := config(m, 0.3, 0.02, Arrival{0, 100, 3, "a"}, Arrival{0.02, 200, 2, "b"})
	c.Params.Lend = 0
	c.index()
	w := newWorld(&c, static(1, 1))
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ prefilled, first, last float64 }{{0.3, 0.315, 0.325}, {0.1, 0.115, 0.135}} {
		j := w.free[1-i]
		got := fmt.Sprintf("%.9f %.9f %.9f", j.prefilled, j.first, j.last)
		if got != fmt.Sprintf("%.9f %.9f %.9f", want.prefilled, want.first, want.last) {
			t.Errorf("request %d: prefilled, first, last: %s, want %v", i, got, want)
		}
	}
	r := must(t, c)
	if a := r.Arms[0]; a.Qualified != 2 || a.Refused != 0 || *a.TTFT.P50 != 115 || *a.TTFT.P99 != 295 || *a.TPOT.P99 != 10 {
		t.Errorf("both within 300 ms: %+v", a)
	}
	// B is priced at 0.08 wait + 0.2 + 0.01.
	c.Params.TTFT, c.Control.TTFT = 0.28, 0.28
	if a := must(t, c).Arms[0]; a.Qualified != 1 || a.Refused != 1 {
		t.Errorf("B does not fit 280 ms: %+v", a)
	}
}

func must(t testing.TB, c Config) Result {
	t.Helper()
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestShiftMovesRolesAndBeatsTheWorstSplit(t *testing.T) {
	r := must(t, shift())
	worst := r.Arms[1]
	for _, a := range r.Arms[1:] {
		if a.Moves != 0 {
			t.Errorf("%s moved", a.Policy)
		}
		if a.Qualified < worst.Qualified {
			worst = a
		}
	}
	d := r.Arms[0]
	t.Logf("default %d with %d moves, best %+v, worst %s %d, bound %d of %d", d.Qualified, d.Moves, r.BestStatic, worst.Policy, worst.Qualified, r.Hindsight.Qualified, r.Offered)
	if d.Policy != "default" || d.Moves < 2 || d.Qualified <= worst.Qualified {
		t.Errorf("default: %+v, worst %+v", d, worst)
	}
	if len(r.Arms) != 8 || r.BestStatic.Qualified <= worst.Qualified {
		t.Errorf("%d arms, best %+v", len(r.Arms), r.BestStatic)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	c := shift()
	c.Arrivals = c.Arrivals[:2000]
	out := make([]string, 4)
	var all sync.WaitGroup
	for i := range out {
		play := func() {
			r, err := Run(context.Background(), c)
			b, _ := json.Marshal(r)
			out[i] = fmt.Sprint(string(b), err)
		}
		if i < 2 {
			play()
			continue
		}
		all.Go(play)
	}
	all.Wait()
	for i, s := range out {
		if s != out[0] || !strings.Contains(s, `"qualified"`) {
			t.Errorf("run %d differs:\n%s\n%s", i, s, out[0])
		}
	}
}

// TestRandomWorkloads runs small fleets in both admission modes under all policies and
// topologies, with engines that are slow or die: no invariant breaks, no arm passes the bound
// (Run fails then), every scored request has one end, and classes add up.
func TestRandomWorkloads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Engines: rapid.IntRange(2, 4).Draw(t, "engines"), PrefillAtStart: 1,
			Prefill: Prefill{1e-7, 1e-3, 0.001}, Decode: Decode{0.01, 0.002, 1e-6},
			MaxRunning: rapid.IntRange(1, 6).Draw(t, "running"), KVTokens: rapid.IntRange(200, 2000).Draw(t, "kv"), Transfer: Transfer{0.004, 1e-6}}
		n := rapid.IntRange(1, 80).Draw(t, "n")
		at, arrivals := 0.0, []Arrival{}
		for range n {
			at += float64(rapid.IntRange(0, 60).Draw(t, "gap")) / 1000
			arrivals = append(arrivals, Arrival{at, rapid.IntRange(0, 400).Draw(t, "in"), rapid.IntRange(0, 30).Draw(t, "out"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "class")})
		}
		c := config(m, float64(rapid.IntRange(1, 20).Draw(t, "ttft"))/10, float64(rapid.IntRange(10, 40).Draw(t, "tpot"))/1000, arrivals...)
		c.Compare, c.Seed = true, rapid.Uint64().Draw(t, "seed")
		c.Policies = rapid.SliceOfDistinct(rapid.SampledFrom(PolicyNames()), rapid.ID).Draw(t, "policies")
		c.Relaunch = float64(rapid.IntRange(0, 10).Draw(t, "relaunch")) / 10
		if rapid.Bool().Draw(t, "topologies") {
			c.Topologies = []string{Aggregated, Static, ColdSwap, HotSwap}
		}
		if rapid.Bool().Draw(t, "unlike") {
			c.Unlike = []Unlike{{Engine: m.Engines - 1, Slow: 2, Dies: float64(rapid.IntRange(0, 3).Draw(t, "dies"))}}
		}
		c.Params.Open = rapid.Bool().Draw(t, "open")
		c.Slow = float64(rapid.IntRange(8, 13).Draw(t, "slow")) / 10
		c.Interval, c.Control.Step, c.Control.EvidenceSpan, c.Control.Cooldown = 0.1, 0.1, 0.2, 0.1
		r := must2(t, c)
		for _, a := range r.Arms {
			offered, qualified := 0, 0
			for _, k := range a.Classes {
				offered, qualified = offered+k.Offered, qualified+k.Qualified
			}
			if a.Qualified > r.Hindsight.Qualified || a.Qualified+a.Refused+a.Failed > r.Offered || r.Offered != n || offered != n || qualified != a.Qualified {
				t.Fatalf("%+v beside %+v of %d", a, r.Hindsight, r.Offered)
			}
		}
	})
}

func must2(t *rapid.T, c Config) Result {
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBrokenStateEndsTheRun(t *testing.T) {
	for name, damage := range map[string]func(w *world){
		"count": func(w *world) { w.turned++ },
		"two homes": func(w *world) {
			w.engines[7].batch = append(w.engines[7].batch, w.engines[6].batch[0])
			w.engines[7].live++
			w.touch(w.engines[7])
		},
		"lost":   func(w *world) { w.engines[7].batch = w.engines[7].batch[:len(w.engines[7].batch)-1] },
		"place":  func(w *world) { w.engines[7].batch[len(w.engines[7].batch)-1].place = joining },
		"tokens": func(w *world) { w.engines[7].tokens++ },
		"ledger": func(w *world) { w.engines[7].live-- },
		"floor": func(w *world) {
			for _, e := range w.engines {
				e.v.Role = model.Prefill
			}
		},
	} {
		c := shift()
		c.Arrivals = even(0, 20, 40, 512, 256, "")
		c.index()
		w := newWorld(&c, policy{name: "default"})
		for range 2000 {
			if err := w.step(); err != nil {
				t.Fatal(err)
			}
		}
		w.thorough = true
		damage(w)
		if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "seed 7, event ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`"fast" is unknown`:             func(c *Config) { c.Policies = []string{"fast"} },
		`"warm" is unknown`:             func(c *Config) { c.Topologies = []string{"warm"} },
		"arrow has no form in aggregat": func(c *Config) { c.Policies, c.Topologies = []string{"arrow"}, []string{Aggregated} },
		"relaunch must take":            func(c *Config) { c.Relaunch = math.NaN() },
		"engine 8 is not in a fleet":    func(c *Config) { c.Unlike = []Unlike{{Engine: 8, Slow: 2}} },
		"engine 1: it may be slower":    func(c *Config) { c.Unlike = []Unlike{{Engine: 1, Slow: 0.5}} },
		"does not split 8 engines":      func(c *Config) { c.Policies = []string{"static:3P6D"} },
		"there are no arrivals":         func(c *Config) { c.Arrivals = nil },
		"no arrival has class":          func(c *Config) { c.Score = "none" },
		"slow is 0":                     func(c *Config) { c.Slow = 0 },
		"promise must be":               func(c *Config) { c.Params.TTFT = 0 },
		"above 0 seconds and finite":    func(c *Config) { c.Params.TPOT = math.Inf(1) },
		"arrival 0 is out of order":     func(c *Config) { c.Arrivals[0].At = 1e9 },
		"engines is 1":                  func(c *Config) { c.Model.Engines = 1 },
		"prefill_at_start is 8":         func(c *Config) { c.Model.PrefillAtStart = 8 },
		"decode.m is -1":                func(c *Config) { c.Model.Decode.M = -1 },
		"must take time":                func(c *Config) { c.Model.Decode = Decode{M: 1} },
		"arrival 1 is out of order":     func(c *Config) { c.Arrivals = []Arrival{{At: 1}, {At: 0}} },
	} {
		c := config(reference(), 2, 0.05, even(0, 1, 4, 100, 10, "x")...)
		change(&c)
		if _, err := Run(t.Context(), c); err == nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, shift()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

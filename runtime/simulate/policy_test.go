package simulate

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// bed is a fleet of four at a moment, the first of which prefills.
func bed(t testing.TB, name string) *world {
	t.Helper()
	m := Model{Engines: 4, PrefillAtStart: 2, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01, R: 0.001, M: 1e-5}, MaxRunning: 10, KVTokens: 10000, Transfer: Transfer{Base: 0.005}}
	c := config(m, 1, 0.04, Arrival{0, 100, 10, "a"})
	c.index()
	p, err := parsePolicy(name, 4)
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(&c, p)
}

// offer places one request and returns its engines, or -1.
func (w *world) offer(input, output int) (p, d int) {
	w.look()
	w.request = model.Request{ID: "r", Arrived: w.now, Input: input, Expected: output}
	at := w.mind.place(&w.fleet, &w.request)
	if at.p == nil {
		return -1, -1
	}
	j := &job{id: "r", at: w.now, input: input, output: output, told: output, p: at.p, d: at.d, own: at.own, queue: at.queue, placed: w.now}
	reserve(j, w.now)
	at.p.addPrefill(j)
	return at.p.index, at.d.index
}

// Two prompts take an engine each, the third the first again; a long one counts as one.
func TestQueueDepthCountsRequests(t *testing.T) {
	w := bed(t, "queue-depth")
	for i, want := range [][2]int{{0, 2}, {1, 3}, {0, 2}, {1, 3}} {
		n := 100
		if i == 0 {
			n = 5000
		}
		if p, d := w.offer(n, 10); p != want[0] || d != want[1] {
			t.Errorf("request %d: %d, %d, want %v", i, p, d, want)
		}
	}
	w.engines[0].v.Live, w.engines[1].v.Live = false, false
	if p, _ := w.offer(1, 1); p != -1 {
		t.Error("a request was placed on engines that are away")
	}
}

// The costs are in lexical order: an engine that decodes comes after one that does not, also
// when it has less to prefill, unless only it keeps the promise.
func TestLexicalOrder(t *testing.T) {
	for _, name := range []string{"reactive-fifo", "arrow"} {
		w := bed(t, name)
		w.engines[0].live, w.engines[0].joinIn = 1, 50
		w.engines[1].whole = 0.7
		if p, _ := w.offer(100, 10); p != 1 {
			t.Errorf("%s: prefill on %d, want 1, which decodes nothing", name, p)
		}
		if p, _ := w.offer(400, 10); p != 0 { // 0.8 + 0.4 s is beyond 1 s
			t.Errorf("%s: prefill on %d, want 0, which keeps the promise", name, p)
		}
		w.engines[2].live, w.engines[2].joinIn = 2, 500
		if _, d := w.offer(100, 10); d != 3 {
			t.Errorf("%s: decode on %d, want 3, which has the most room", name, d)
		}
	}
}

// mostTokens by hand: 40 ms less 10 ms less 5·1 ms is 25 ms, at 10 µs a token.
func TestMostTokens(t *testing.T) {
	v := bed(t, "arrow").engines[0].v
	for _, c := range []struct {
		requests int
		want     float64
	}{{5, 2500}, {11, 0}, {0, 3000}} {
		if got := mostTokens(v, 0.04, c.requests); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d requests: %v, want %v", c.requests, got, c.want)
		}
	}
}

// Prices are backlog, the prompt and the handoff: 0.6 + 0.3 s fit, and the interval's handoff of
// 0.2 s makes them too much.
func TestReactivePricesWithTheMedian(t *testing.T) {
	w := bed(t, "reactive-fifo")
	w.engines[0].whole, w.engines[1].whole = 0.6, 0.6
	w.handoff = 0.2
	if p, _ := w.offer(300, 10); p != -1 {
		t.Error("1.1 s was admitted")
	}
	w.handoff = 0
	if p, _ := w.offer(300, 10); p != 0 {
		t.Error("0.9 s was refused")
	}
	if p, _ := w.offer(9000, 10); p != -1 {
		t.Error("9 s was admitted")
	}
}

// Twenty seats, all taken until the answers end one by one: the seat that is free first decides.
func TestReactiveWaitsForSeats(t *testing.T) {
	w := bed(t, "reactive-fifo")
	for i, e := range w.engines[2:] {
		for k := range 10 {
			e.batch = append(e.batch, &job{input: 10, output: 100, told: 100, leaves: 20 + 10*k + i, d: e})
		}
	}
	r := w.mind.(*reactive)
	at, held := r.start(&w.fleet, 20, 0.5, 0.01)
	if at != 0.5 || held != 13*110 { // 0.2 … 1.11 s: seven have ended by 0.5 s
		t.Errorf("starts at %v beside %d tokens, want 0.5 and %d", at, held, 13*110)
	}
	if at, _ = r.start(&w.fleet, 20, 0.1, 0.01); math.Abs(at-0.2) > 1e-9 {
		t.Errorf("starts at %v, want 0.2", at)
	}
	w.engines[2].join.push(&job{input: 10, output: 500, told: 500})
	if at, _ = r.start(&w.fleet, 20, 0.1, 0.01); math.Abs(at-0.21) > 1e-9 {
		t.Errorf("starts at %v behind one that waits, want 0.21", at)
	}
}

func TestUtilisationMovesOne(t *testing.T) {
	for _, c := range []struct {
		prefill, decode float64
		p, d, want      int
	}{
		{0.9, 0.5, 2, 6, 3}, // 0.5·6/5 = 0.6
		{0.9, 0.7, 2, 6, 2}, // 0.84 on five
		{0.3, 0.9, 4, 4, 3},
		{0.7, 0.9, 4, 4, 4},
		{0.9, 0.1, 7, 1, 7},
		{0.1, 0.9, 1, 7, 1},
		{0.5, 0.5, 4, 4, 4},
	} {
		if got := shifted(c.prefill, c.decode, c.p, c.d, 0.8); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A role at its promise beside one below half of it takes an engine, once a cooldown to decode.
func TestArrowChangesOneRole(t *testing.T) {
	w := bed(t, "arrow")
	a := w.mind.(*arrow)
	w.engines[0].whole, w.engines[1].whole = 1.2, 0.9
	w.look()
	if m := a.tick(&w.fleet); len(m) != 1 || m[0].To != model.Prefill {
		t.Fatalf("prefill at 1.05: %+v", m)
	}
	w.engines[0].whole, w.engines[1].whole = 0, 0
	for _, e := range w.engines[2:] {
		e.live, e.v.Gap = 1, 0.04
	}
	w.now = 100
	w.look()
	if m := a.tick(&w.fleet); len(m) != 1 || m[0].To != model.Decode {
		t.Fatalf("decode at 1: %+v", m)
	}
	w.now = 105
	if m := a.tick(&w.fleet); len(m) != 0 {
		t.Fatalf("within the cooldown: %+v", m)
	}
}

// A cold swap: the engine serves what it has, is away for the relaunch, and serves the other
// role from then on.
func TestColdSwapDrainsAndRelaunches(t *testing.T) {
	m := Model{Engines: 3, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000}
	c := config(m, 5, 0.05, even(0, 60, 2, 100, 150, "a")...)
	c.Relaunch = 7
	c.index()
	w := newWorld(&c, policy{name: "default", topology: ColdSwap})
	for w.now < 5 {
		if err := w.step(); err != nil {
			t.Fatal(err)
		}
	}
	e := w.engines[1]
	served := len(e.batch) + e.join.len()
	w.move(e, model.Prefill)
	w.move(w.engines[2], model.Prefill) // the last live one of its role
	if served == 0 || e.v.Live || !w.engines[2].v.Live || w.away != 1 {
		t.Fatalf("%d on the engine, live %v, %d away", served, e.v.Live, w.away)
	}
	drained := 0.0
	for !e.v.Live {
		if err := w.step(); err != nil {
			t.Fatal(err)
		}
		if drained == 0 && !math.IsInf(e.back, 1) {
			drained = w.now
		}
	}
	if e.v.Role != model.Prefill || w.now < drained+7 || w.now > drained+8 || drained < 6 {
		t.Errorf("role %s, drained at %v, back at %v", e.v.Role, drained, w.now)
	}
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := w.score(); a.Topology != ColdSwap || a.Qualified != len(c.Arrivals) {
		t.Errorf("%+v", a)
	}
}

// Aggregated engines prefill and decode their own requests; their KV does not travel.
func TestAggregatedKeepsARequestOnOneEngine(t *testing.T) {
	m := Model{Engines: 2, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000, Transfer: Transfer{Base: 0.005}}
	c := config(m, 1, 0.05, Arrival{0, 100, 2, "a"})
	c.Topologies = []string{Aggregated, HotSwap}
	r := must(t, c)
	if len(r.Arms) != 2 || r.Arms[0].Topology != Aggregated || *r.Arms[0].TTFT.P50 != 110 || *r.Arms[1].TTFT.P50 != 115 {
		t.Errorf("%+v", r.Arms)
	}
}

// An engine that dies takes its requests with it; the others serve on.
func TestDyingEngine(t *testing.T) {
	c := shift()
	c.Arrivals, c.Compare = even(0, 60, 20, 512, 256, "x"), false
	c.Unlike = []Unlike{{Engine: 7, Dies: 30}, {Engine: 0, Slow: 2}}
	a := must(t, c).Arms[0]
	if a.Failed < 1 || a.Failed > 200 || a.Qualified < 900 || a.Qualified+a.Refused+a.Failed > 1200 {
		t.Errorf("%+v", a)
	}
}

// The reference's published figures, counted on the same arrivals and engines. Its controller
// is not this one, so those with a split that stays are compared.
func TestReactiveIsNearTheReference(t *testing.T) {
	for _, c := range []struct {
		workload  string
		slow      float64
		prefill   int
		reference int
		apart     float64 // share of it
	}{
		{"even-below", 1, 2, 3564, 0}, {"even-at", 1, 2, 5338, 0}, {"even-above", 1, 2, 5314, 0.01}, {"even-above", 1.02, 2, 3252, 0.02},
		{"burst", 1, 2, 10018, 0.04}, {"azure-x4", 1, 2, 9494, 0.05}, {"azure-x4", 1, 4, 11126, 0.03}, {"chatdoc-100", 1, 3, 23038, 0.02},
	} {
		cfg := workload(t, c.workload)
		cfg.Slow, cfg.Model.PrefillAtStart = c.slow, c.prefill
		cfg.index()
		w := newWorld(&cfg, policy{name: "reactive-fifo", topology: Static})
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := w.score()
		t.Logf("%s %.2f, %d prefill: %d, the reference %d", c.workload, c.slow, c.prefill, a.Qualified, c.reference)
		if math.Abs(float64(a.Qualified-c.reference)) > c.apart*float64(c.reference) {
			t.Errorf("%s %.2f, %d prefill: %d, the reference %d", c.workload, c.slow, c.prefill, a.Qualified, c.reference)
		}
	}
}

// Each class is reported as appears from a run of its own counts.
func TestClassesAreReported(t *testing.T) {
	c := shift()
	c.Compare, c.Score = false, "chat"
	r := must(t, c)
	a := r.Arms[0]
	if len(a.Classes) != 2 || a.Classes[0].Class != "doc" || a.Classes[1].Class != "chat" || a.Classes[0].Offered != 1000 || a.Classes[1].Offered != 11000 {
		t.Fatalf("%+v", a.Classes)
	}
	chat := a.Classes[1]
	if chat.Qualified != a.Qualified || chat.Refused != a.Refused || chat.Attainment != a.Attainment || *chat.TTFT.P99 != *a.TTFT.P99 {
		t.Errorf("the scored class %+v, the arm %+v", chat, a)
	}
	b, err := json.Marshal(a)
	if err != nil || !slices.Contains(keys(t, b), "by_class") {
		t.Errorf("%s %v", b, err)
	}
}

func keys(t *testing.T, b []byte) (out []string) {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for k := range m {
		out = append(out, k)
	}
	return out
}

package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

var curve = profile.Curve{A: 6e-9, B: 5.5e-5, C: 0.003, Slope: 2.5e-7, RequestSlope: 1.2e-4, Intercept: 0.012,
	MinRequests: 1, MaxRequests: 128, MinKVTokens: 1, MaxKVTokens: 400000}

func engine(id string, role model.Role) model.EngineView {
	return model.EngineView{ID: id, Role: role, Live: true, Curve: curve}
}

func snapshot(engines ...model.EngineView) model.Snapshot {
	return model.Snapshot{At: 100, Params: model.Params{TTFT: 2, TPOT: 0.05}, Handoff: 0.005, Engines: engines}
}

func admit(s model.Snapshot, r model.Request, now float64) Decision { return Admit(&s, &r, now, nil) }
func place(s model.Snapshot, r model.Request, now float64) Decision { return Place(&s, &r, now, nil) }

func request(input, expected int) model.Request {
	return model.Request{ID: "r", Arrived: 100, Input: input, Expected: expected}
}

func TestAdmit(t *testing.T) {
	busy := func(e model.EngineView, backlog float64) model.EngineView { e.PrefillFree = 100 + backlog; return e }
	loaded := func(e model.EngineView, requests, tokens, remaining int) model.EngineView {
		e.DecodeRequests, e.DecodeTokens, e.DecodeRemaining = requests, tokens, remaining
		return e
	}
	down := func(e model.EngineView) model.EngineView { e.Live = false; return e }
	pin := func(e model.EngineView) model.EngineView { e.Pinned = true; return e }
	p0, p1, d0, d1 := engine("p0", model.Prefill), engine("p1", model.Prefill), engine("d0", model.Decode), engine("d1", model.Decode)
	for name, c := range map[string]struct {
		s          model.Snapshot
		r          model.Request
		p, d       string
		refused    model.Reason
		retryAfter int
	}{
		"shortest queue":        {s: snapshot(busy(p0, 1), p1, d0), r: request(500, 100), p: "p1", d: "d0"},
		"emptier decode":        {s: snapshot(p0, loaded(d0, 20, 20000, 2000), d1), r: request(500, 100), p: "p0", d: "d1"},
		"one engine, one leg":   {s: snapshot(d0), r: request(500, 100), p: "d0", d: "d0"},
		"no prefill engine":     {s: snapshot(down(p0), d0), r: request(500, 100), p: "d0", d: "d0"},
		"idle beats resident":   {s: snapshot(down(p0), loaded(d0, 30, 30000, 3000), d1), r: request(500, 100), p: "d1", d: "d1"},
		"pinned roles stay":     {s: snapshot(pin(p0), down(pin(d0))), r: request(5, 1), refused: model.ReasonNoEngine, retryAfter: 1},
		"nobody":                {s: snapshot(down(p0), down(d0)), r: request(5, 1), refused: model.ReasonNoEngine, retryAfter: 1},
		"queue too long":        {s: snapshot(busy(p0, 9.5), d0), r: request(500, 100), refused: model.ReasonQueue, retryAfter: 8},
		"prompt too long":       {s: snapshot(p0, d0), r: request(16000, 100), refused: model.ReasonPrompt},
		"queue before prompt":   {s: snapshot(busy(p0, 1.9), d0), r: request(10000, 1), refused: model.ReasonQueue, retryAfter: 2},
		"no seat":               {s: snapshot(p0, loaded(d0, 128, 3000, 10)), r: request(5, 1), refused: model.ReasonSlotWait, retryAfter: 1},
		"cache full":            {s: snapshot(p0, loaded(d0, 9, 399990, 10)), r: request(500, 1), refused: model.ReasonKVCapacity, retryAfter: 1},
		"batch too slow":        {s: snapshot(p0, loaded(d0, 120, 120000, 10)), r: request(500, 1), refused: model.ReasonTPOT, retryAfter: 1},
		"decode on a donor":     {s: snapshot(p0, loaded(p1, 60, 60000, 6000), d0), r: request(4000, 10), p: "p0", d: "d0"},
		"unsplit asked":         {s: snapshot(busy(p0, 1), d0), r: model.Request{ID: "r", Arrived: 100, Input: 9, Expected: 1, Unsplit: true}, p: "d0", d: "d0"},
		"elapsed counts":        {s: snapshot(p0, d0), r: model.Request{ID: "r", Arrived: 97, Input: 9, Expected: 1}, refused: model.ReasonQueue, retryAfter: 1},
		"probation costs":       {s: snapshot(model.EngineView{ID: "p0", Role: model.Prefill, Live: true, Curve: curve, Penalty: 1.5}, busy(p1, 1), d0), r: request(5, 1), p: "p1", d: "d0"},
		"without a measurement": {s: snapshot(model.EngineView{ID: "p0", Role: model.Prefill, Live: true}, d0), r: request(5, 1), refused: model.ReasonNoEngine, retryAfter: 1},
	} {
		c.s.Params.TPOT = 0.045
		if name == "batch too slow" {
			c.s.Params.TPOT = 0.04
		}
		got := admit(c.s, c.r, 100)
		if got.Prefill != c.p || got.Decode != c.d || got.Refused != c.refused || got.RetryAfter != c.retryAfter || got.Placed == (c.refused != "") {
			t.Errorf("%s: %s→%s refused %q retry %d, want %s→%s %q %d\n%+v", name, got.Prefill, got.Decode, got.Refused, got.RetryAfter,
				c.p, c.d, c.refused, c.retryAfter, got)
		}
	}
}

// The reference refuses this request because it prices only the engine without decode
// residents; the cheaper one is within the promise.
func TestAdmitPricesTheCheapestPair(t *testing.T) {
	a, b := engine("a", model.Prefill), engine("b", model.Prefill)
	a.PrefillFree = 101.9
	b.DecodeRequests, b.DecodeTokens, b.DecodeRemaining = 1, 100, 10
	r := request(500, 10)
	r.Arrived = 99.8
	if got := admit(snapshot(a, b, engine("d", model.Decode)), r, 100); got.Prefill != "b" {
		t.Fatalf("placed on %q, refused %q", got.Prefill, got.Refused)
	}
}

func TestPlaceIgnoresLatenessOnly(t *testing.T) {
	p, d := engine("p", model.Prefill), engine("d", model.Decode)
	p.PrefillFree = 200
	if got := place(snapshot(p, d), request(500, 10), 100); !got.Placed || !got.OverBudget {
		t.Errorf("late pair: %+v", got)
	}
	d.DecodeRequests = 128
	if got := place(snapshot(p, d), request(500, 10), 100); got.Placed || got.Refused != model.ReasonQueue && got.Refused != model.ReasonSlotWait {
		t.Errorf("full pair: %+v", got)
	}
	s := snapshot(p, engine("d", model.Decode))
	s.Params.Open = true
	if got := admit(s, request(500, 10), 100); !got.Placed || !got.OverBudget {
		t.Errorf("open mode: %+v", got)
	}
}

func TestSeatsAreCountedWhenTheyAreNeeded(t *testing.T) {
	p, d := engine("p", model.Prefill), engine("d", model.Decode)
	d.Curve.MaxRequests = 2
	d.DecodeRequests, d.DecodeTokens = 2, 600
	for name, c := range map[string]struct {
		residents []model.Resident
		placed    bool
	}{
		"both stay":               {[]model.Resident{{Tokens: 300, Remaining: 500}, {Tokens: 300, Remaining: 500}}, false},
		"one leaves in time":      {[]model.Resident{{Tokens: 300, Remaining: 500}, {Tokens: 300, Remaining: 5}}, true},
		"one comes later":         {[]model.Resident{{Tokens: 300, Remaining: 500}, {Ready: 101, Tokens: 300, Remaining: 500}}, true},
		"one comes in between":    {[]model.Resident{{Tokens: 300, Remaining: 500}, {Ready: 100.2, Tokens: 300, Remaining: 500}}, false},
		"it came and went before": {[]model.Resident{{Tokens: 300, Remaining: 500}, {Ready: 100.1, Tokens: 300, Remaining: 3}}, true},
	} {
		d.Later = residents(c.residents)
		got := admit(snapshot(p, d), request(7000, 20), 100) // a prefill of 0.68 s
		if got.Placed != c.placed || !c.placed && got.Refused != model.ReasonSlotWait {
			t.Errorf("%s: placed %v, refused %q", name, got.Placed, got.Refused)
		}
	}
}

// Several answers to one request take a seat each and are made at the pace of all of them.
func TestSequencesTakeSeats(t *testing.T) {
	p, d := engine("p", model.Prefill), engine("d", model.Decode)
	of := func(d model.EngineView, sequences, expected int) Decision {
		r := request(500, expected)
		r.Sequences = sequences
		return admit(snapshot(p, d), r, 100)
	}
	decoder := func(x Decision) Side {
		i := slices.IndexFunc(x.Decodes, func(s Side) bool { return s.Engine == "d" })
		return x.Decodes[i]
	}
	one, many := decoder(of(d, 0, 100)), decoder(of(d, 40, 4000))
	if want := curve.Interval(40, 500) / curve.Interval(1, 500); math.Abs(many.Interval/one.Interval-want) > 1e-9 {
		t.Errorf("40 sequences are made at %v, one at %v, want a ratio of %v", many.Interval, one.Interval, want)
	}
	d.DecodeRequests, d.DecodeTokens = 100, 20000
	d.Later = residents([]model.Resident{{Tokens: 20000, Remaining: 100 * 5000, Sequences: 100}})
	for sequences, want := range map[int]bool{1: true, 28: true, 29: false, 128: false} {
		if got := of(d, sequences, 100*sequences); got.Placed != want || !want && got.Refused != model.ReasonSlotWait {
			t.Errorf("%d beside 100 of 128: placed %v, refused %q", sequences, got.Placed, got.Refused)
		}
	}
	if got := of(engine("d", model.Decode), 1000, 1000); !got.Placed {
		t.Errorf("more than an idle engine has seats: %q", got.Refused)
	}
}

func TestTiesSpreadOverAnIdleFleet(t *testing.T) {
	s := snapshot(engine("p0", model.Prefill), engine("p1", model.Prefill), engine("d0", model.Decode), engine("d1", model.Decode))
	pairs := map[string]int{}
	for i := range 400 {
		r := request(500, 100)
		r.ID = fmt.Sprintf("req-%d", i)
		d := admit(s, r, 100)
		pairs[d.Prefill+d.Decode]++
	}
	for _, pair := range []string{"p0d0", "p0d1", "p1d0", "p1d1"} {
		if pairs[pair] < 60 {
			t.Errorf("pair %s served %d of 400: %v", pair, pairs[pair], pairs)
		}
	}
}

func genSnapshot(t *rapid.T) model.Snapshot {
	n := rapid.IntRange(1, 6).Draw(t, "engines")
	s := snapshot()
	for i := range n {
		e := engine(fmt.Sprintf("e%d", i), rapid.SampledFrom([]model.Role{model.Prefill, model.Decode}).Draw(t, "role"))
		e.Live = rapid.IntRange(0, 4).Draw(t, "live") > 0
		e.Pinned = rapid.Bool().Draw(t, "pin")
		e.PrefillFree = rapid.Float64Range(90, 104).Draw(t, "free")
		e.DecodeRequests = rapid.IntRange(0, 130).Draw(t, "requests")
		e.DecodeTokens = e.DecodeRequests * rapid.IntRange(1, 4000).Draw(t, "tokens")
		e.DecodeRemaining = e.DecodeRequests * 50
		e.Risk = rapid.Float64Range(0, 2).Draw(t, "risk")
		s.Engines = append(s.Engines, e)
	}
	s.Params.Open = rapid.Bool().Draw(t, "open")
	for i := range s.Engines {
		for j := range s.Engines {
			if i != j && rapid.IntRange(0, 9).Draw(t, "barred") == 0 {
				s.Barred = append(s.Barred, model.Edge{Prefill: i, Decode: j})
			}
		}
	}
	return s
}

func TestDecisionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSnapshot(t)
		r := model.Request{ID: rapid.StringN(1, 6, 12).Draw(t, "id"), Arrived: rapid.Float64Range(95, 100).Draw(t, "arrived"),
			Input: rapid.IntRange(1, 20000).Draw(t, "input"), Expected: rapid.IntRange(0, 500).Draw(t, "expected"),
			Unsplit: rapid.Bool().Draw(t, "unsplit")}
		if rapid.Bool().Draw(t, "avoid") {
			r.AvoidPrefill = []string{"e0"}
		}
		d := admit(s, r, 100)
		checkDecision(t, s, r, d)

		// The order of the inventory does not matter, and nothing is remembered.
		shuffled := s
		shuffled.Engines = append([]model.EngineView{}, s.Engines...)
		rng := rand.New(rand.NewPCG(1, uint64(r.Input)))
		shuffled.Barred = slices.Clone(s.Barred)
		rng.Shuffle(len(shuffled.Engines), func(i, j int) {
			shuffled.Engines[i], shuffled.Engines[j] = shuffled.Engines[j], shuffled.Engines[i]
			for k := range shuffled.Barred {
				e := &shuffled.Barred[k]
				for _, end := range []*int{&e.Prefill, &e.Decode} {
					if *end == i {
						*end = j
					} else if *end == j {
						*end = i
					}
				}
			}
		})
		again := admit(shuffled, r, 100)
		if again.Prefill != d.Prefill || again.Decode != d.Decode || again.Refused != d.Refused || again.RetryAfter != d.RetryAfter {
			t.Fatalf("order changed the decision: %+v then %+v", d, again)
		}
		if again := admit(s, r, 100); !reflect.DeepEqual(d, again) {
			t.Fatalf("same input, other decision: %+v, %+v", d, again)
		}
	})
}

func checkDecision(t *rapid.T, s model.Snapshot, r model.Request, d Decision) {
	if d.Placed == (d.Refused != "") {
		t.Fatalf("placed %v and refused %q", d.Placed, d.Refused)
	}
	if d.Refused == model.ReasonQueue && d.RetryAfter < 1 {
		t.Fatalf("queue refusal without a retry-after: %+v", d)
	}
	byID := map[string]model.EngineView{}
	for _, e := range s.Engines {
		byID[e.ID] = e
	}
	for _, e := range s.Barred {
		if d.Placed && d.Prefill == s.Engines[e.Prefill].ID && d.Decode == s.Engines[e.Decode].ID {
			t.Fatalf("split over a barred pair: %+v", d)
		}
	}
	for _, c := range append(slices.Clone(d.Prefills), d.Decodes...) {
		if !byID[c.Engine].Live {
			t.Fatalf("%s was looked at and is not live", c.Engine)
		}
	}
	cheapest, within := exhaustive(s, r)
	switch {
	case within != d.Placed && !s.Params.Open, within && d.OverBudget:
		t.Fatalf("a pair within the promise: %v, but %+v", within, d)
	case d.Placed && d.Parts.Total() > cheapest*(1+2.0/hardlyMore)+4e-6:
		t.Fatalf("chose %+v, a pair costs %f", d, cheapest)
	}
	if !d.Placed {
		return
	}
	p, q := byID[d.Prefill], byID[d.Decode]
	if r.Unsplit && d.Split() {
		t.Fatal("unsplit request was split")
	}
	if len(r.AvoidPrefill) > 0 && d.Prefill == r.AvoidPrefill[0] {
		t.Fatal("placed on an engine to avoid")
	}
	if !r.Unsplit && (p.Pinned && p.Role != model.Prefill || q.Pinned && q.Role != model.Decode) {
		t.Fatalf("a pinned engine serves the other role: %+v %+v", p, q)
	}
	if q.DecodeRequests >= curve.MaxRequests {
		t.Fatal("placed on an engine without a seat")
	}
}

func TestMorePrefillWorkNeverLowersThePrice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSnapshot(t)
		r := request(rapid.IntRange(1, 5000).Draw(t, "input"), 100)
		before := weigh(&s, &r, 100, nil)
		for i := range s.Engines {
			s.Engines[i].PrefillFree += rapid.Float64Range(0, 3).Draw(t, "more")
		}
		after := weigh(&s, &r, 100, nil)
		for k, c := range append(after.ps, after.ds...) {
			if b := append(before.ps, before.ds...)[k]; c.Price < b.Price || c.Cost < b.Cost {
				t.Fatalf("price fell from %+v to %+v", b, c)
			}
		}
	})
}

// exhaustive prices every pair from the definition: the least cost of those within the promise,
// or in open mode and without such, of those that hold the request.
func exhaustive(s model.Snapshot, r model.Request) (cost float64, within bool) {
	w := weigh(&s, &r, 100, nil)
	cost = math.Inf(1)
	late := math.Inf(1)
	for i := range w.ps {
		for j := range w.ds {
			p, d := w.ps[i], w.ds[j]
			if p.Dropped != "" || d.Dropped != "" && d.Dropped != model.ReasonTPOT || r.Unsplit && p.Engine != d.Engine || w.room(&p, &d) != "" {
				continue
			}
			v := w.decision(&p, &d)
			if d.Dropped == "" && v.Price <= s.Params.Budget() {
				cost, within = min(cost, v.Parts.Total()), true
			}
			late = min(late, v.Parts.Total())
		}
	}
	if !within {
		return late, false
	}
	return cost, true
}

// A retry whose only decode engine has failed it goes to the other role before it gives up.
func TestRetryFallsBackWhenItsRoleHasFailed(t *testing.T) {
	s := snapshot(engine("p0", model.Prefill), engine("d0", model.Decode))
	d := place(s, model.Request{ID: "r", Input: 100, Expected: 10, AvoidDecode: []string{"d0"}, AvoidPrefill: nil}, s.At)
	if !d.Placed || d.Decode != "p0" || d.Prefill != "p0" {
		t.Errorf("%+v", d)
	}
	s.Params.FixedRoles = true
	if d := place(s, model.Request{ID: "r", Input: 100, Expected: 10, AvoidDecode: []string{"d0"}}, s.At); d.Placed {
		t.Errorf("roles are fixed: %+v", d)
	}
}

// residents answers for an engine by its list.
type residents []model.Resident

func (l residents) Occupied(now, at, interval float64) (requests, tokens int) {
	for _, r := range l {
		n, k := r.Takes(now, at, interval)
		requests, tokens = requests+n, tokens+k
	}
	return requests, tokens
}

func (residents) Slack(float64, *model.Params) float64 { return 0 }

// bearing answers for an engine whose residents bear so many seconds.
type bearing float64

func (b bearing) Occupied(float64, float64, float64) (int, int) { return 0, 0 }
func (b bearing) Slack(float64, *model.Params) float64          { return float64(b) }

func TestDecodeEnginesLendTheirTime(t *testing.T) {
	p, d0, d1 := engine("p", model.Prefill), engine("d0", model.Decode), engine("d1", model.Decode)
	busy := p
	busy.PrefillFree = 101.5
	bears := func(e model.EngineView, seconds float64) model.EngineView { e.Later = bearing(seconds); return e }
	pin := func(e model.EngineView) model.EngineView { e.Pinned = true; return e }
	for name, c := range map[string]struct {
		s       model.Snapshot
		lend    float64
		fixed   bool
		p       string
		refused bool
	}{
		"prefill engine is free":      {s: snapshot(p, bears(d0, 9)), lend: 0.1, p: "p"},
		"prefill engine has a queue":  {s: snapshot(busy, bears(d0, 9)), lend: 0.1, p: "d0"},
		"nobody lends":                {s: snapshot(busy, bears(d0, 9)), lend: 0, p: "p"},
		"the queue is within the bar": {s: snapshot(busy, bears(d0, 9)), lend: 0.9, p: "p"},
		"residents cannot bear it":    {s: snapshot(busy, bears(d0, 0.2)), lend: 0.1, p: "p"},
		"those of one can":            {s: snapshot(busy, bears(d0, 0.2), bears(d1, 9)), lend: 0.1, p: "d1"},
		"its role is pinned":          {s: snapshot(busy, pin(bears(d0, 9))), lend: 0.1, p: "p"},
		"roles are fixed":             {s: snapshot(busy, bears(d0, 9)), lend: 0.1, fixed: true, p: "p"},
		"instead of a refusal":        {s: snapshot(func() model.EngineView { e := p; e.PrefillFree = 105; return e }(), bears(d0, 9)), lend: 0.1, p: "d0"},
		"a refusal when nobody can":   {s: snapshot(func() model.EngineView { e := p; e.PrefillFree = 105; return e }(), bears(d0, 0.1)), lend: 0.1, refused: true},
		"nobody knows the residents":  {s: snapshot(busy, d0), lend: 0.1, p: "p"},
	} {
		c.s.Params.Lend, c.s.Params.FixedRoles = c.lend, c.fixed
		got := admit(c.s, request(4000, 100), 100) // a prefill of 0.32 s
		if got.Prefill != c.p || got.Placed == c.refused {
			t.Errorf("%s: prefill on %q, refused %q, want %q", name, got.Prefill, got.Refused, c.p)
		}
	}
}

package router

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

func startReplayRow(t *testing.T) profile.Row {
	t.Helper()
	store, err := profile.ReadStore(bytes.NewReader(replayFile(t, "profiles.json")))
	if err != nil {
		t.Fatal(err)
	}
	return store.Rows[0]
}

// ids is a prompt of n token ids.
func ids(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }

// prefillOf fits the prefill of a prompt of n token ids.
func prefillOf(iid string, n int) func(scriptLeg) bool {
	return func(l scriptLeg) bool {
		p, _ := l.body["prompt"].([]any)
		return at(iid, "-prefill")(l) && len(p) == n
	}
}

// moved starts a prefill engine p0 with a prompt of 1.77 s that it does not end, and e1,
// which became a prefill engine while it still decodes one request.
func moved(t *testing.T) *replayBed {
	b := startReplay(t, []string{"p0 prefill", "e1 decode", "d2 decode"}, false)
	b.begin(completion(`{"prompt":"x","max_tokens":300,"stream":true,"fault":{"kind":"gate_decode"}}`))
	b.seen("the stream on e1", at("e1", "-a1-decode"))
	b.router.own.do(func() { b.router.own.node("e1").role = model.Prefill })
	b.begin(completion(`{"prompt":%s,"max_tokens":2,"fault":{"kind":"slow"}}`, ids(11000)))
	b.seen("the long prompt on p0", prefillOf("p0", 11000))
	return b
}

// Refused is only what fits nowhere: p0 would be too late, e1 is in time although it still
// decodes.
func TestRow07EveryEngineIsPricedBeforeARefusal(t *testing.T) {
	b := moved(t)
	if a := b.complete(`{"prompt":%s,"max_tokens":2}`, ids(8000)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.seen("the prompt on e1", prefillOf("e1", 8000))
	// The same prompt is refused once e1 is as busy as p0.
	b.begin(completion(`{"prompt":%s,"max_tokens":2,"fault":{"kind":"slow"}}`, ids(10000)))
	b.seen("the second long prompt on e1", prefillOf("e1", 10000))
	if a := b.complete(`{"prompt":%s,"max_tokens":2}`, ids(8000)); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Seconds decide, not the resident decode tokens: the moved engine prefills while p0, though
// within its promise, has a queue.
func TestRow08MovedEnginePrefillsAtOnce(t *testing.T) {
	b := moved(t)
	if a := b.complete(`{"prompt":%s,"max_tokens":2}`, ids(500)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.seen("the prompt on e1", prefillOf("e1", 500))
}

func TestRow09IdleFleetIsUsedEvenly(t *testing.T) {
	b := startReplay(t, rolesF1, true)
	const requests = 32
	for range requests {
		if a := b.complete(`{"prompt":[1,2],"max_tokens":1}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	legs := map[string]int{}
	for _, l := range b.received() {
		legs[l.iid]++
	}
	if len(legs) != 4 || legs["p0"]+legs["p1"] != requests || legs["d0"]+legs["d1"] != requests {
		t.Errorf("legs %v", legs)
	}
}

// A price is what the engine kept to lately, not what its curve says.
func TestRow12PriceFollowsTheObservedTail(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	if a := b.complete(`{"prompt":%s,"max_tokens":1}`, ids(8000)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.router.own.do(func() {
		for _, n := range b.router.own.nodes {
			n.prefillWork, n.prefillKappa = profile.Ratio{}, 1 // the bed's engines take no time
			for i := range 64 {
				n.observe([]float64{1, 2}[i%10/7]) // three of ten take twice their price
			}
		}
	})
	if a := b.complete(`{"prompt":%s,"max_tokens":1}`, ids(8000)); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An engine that is slower than its profile says costs what it takes, not what was measured once.
func TestRow12SlowEnginesArePricedAsTheyAre(t *testing.T) {
	o := &owner{set: &settings{}}
	o.set.Fleet.Controller.Reactive.DecodeCorrectionMin, o.set.Fleet.Controller.Reactive.DecodeCorrectionMax = 0.5, 2
	o.set.Fleet.Controller.Reactive.DecodeCorrectionAlpha, o.set.interval = 0.2, time.Second
	row := startReplayRow(t)
	n := &node{curve: row.Curve(), kappa: 1, prefillKappa: 1, decoding: map[*claim]struct{}{}}
	other := &node{curve: row.Curve(), kappa: 1, prefillKappa: 1}
	o.nodes = []*node{n, other}
	for now := 10.0; now < 60; {
		l := &claim{p: n, input: 4000, at: now, own: n.curve.Prefill(4000)}
		now += 1.3 * n.curve.Prefill(4000)
		o.learnPrefill(l, now)
		n.lastPrefill = now
	}
	for range 20 {
		l := &claim{d: n, input: 1000}
		n.decoding[l] = struct{}{}
	}
	n.settledAt = 60
	for k, now := 1, 60.0; k <= 1000; k++ {
		for l := range n.decoding {
			l.tokens.Add(1)
			n.made.Add(1)
		}
		now += 1.2 * n.curve.Interval(20, 20*(1000+k))
		n.settle(now, o.memory())
		n.kappa = n.decodeWork.Value(0.5, 2)
	}
	o.presume()
	if math.Abs(n.prefillKappa-1.3) > 0.02 || math.Abs(n.kappa-1.2) > 0.05 {
		t.Errorf("corrections %v and %v, want 1.3 and 1.2", n.prefillKappa, n.kappa)
	}
	if other.prefillKappa != n.prefillKappa || other.kappa != n.kappa {
		t.Errorf("an engine without work: %v and %v", other.prefillKappa, other.kappa)
	}
}

// A decode engine whose residents can bear it takes the prefill that would wait.
func TestDecodeEngineTakesAPrefillThatWaits(t *testing.T) {
	for _, lend := range []float64{0, 0.1} {
		b := startReplay(t, []string{"p0 prefill", "d0 decode"}, false, func(c *Config) { c.LendFrom = lend })
		b.begin(completion(`{"prompt":%s,"max_tokens":2,"fault":{"kind":"slow"}}`, ids(6000)))
		b.seen("the long prompt on p0", prefillOf("p0", 6000))
		b.begin(completion(`{"prompt":%s,"max_tokens":2}`, ids(10)))
		want := prefillOf("p0", 10)
		if lend > 0 {
			want = func(l scriptLeg) bool {
				p, _ := l.body["prompt"].([]any)
				return l.iid == "d0" && len(p) == 10
			}
		}
		b.seen("the short prompt", want)
	}
}

// Prefill on an engine that decodes has a price; it is no reason to refuse.
func TestRow13PrefillBesideDecodeIsPriced(t *testing.T) {
	b := startReplay(t, rolesDecode, true)
	for range 4 {
		b.begin(completion(`{"prompt":"x","max_tokens":300,"stream":true,"fault":{"kind":"gate_decode"}}`))
	}
	eventually(t, "both engines decode", func() bool {
		s := b.state()
		return s.Resident["e0"]["decode"] > 0 && s.Resident["e1"]["decode"] > 0 && s.Resident["e0"]["decode"]+s.Resident["e1"]["decode"] == 4
	})
	if a := b.complete(`{"prompt":[1,2,3],"max_tokens":1}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Where one engine does both, it is asked once.
func TestRow14OneEngineIsAskedOnce(t *testing.T) {
	for i, r := range []replayRequest{caseNamed(t, "exchanges-topologies.jsonl", "single_engine_aggregated").Request, completion(`{"prompt":[1],"max_tokens":2,"stream":true}`)} {
		b := startReplay(t, rolesSingle, false)
		if a := b.send(r); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		legs := b.received()
		if len(legs) != 1 || legs[0].body["kv_transfer_params"] != nil {
			t.Errorf("request %d: legs %v", i, fmt.Sprint(legs))
		}
	}
}

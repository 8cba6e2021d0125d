package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// bootRole starts an engine of the dialect whose processes have roles.
func bootRole(t *testing.T, role string, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	return boot(t, func(c *simulated.Config) {
		c.Dialect, c.Role, c.BlockSize, c.Blocks = "sglang", role, 1, 32000
		c.RendezvousTimeout = fleet.Duration(2 * time.Second)
		if change != nil {
			change(c)
		}
	})
}

func handTogether(t *testing.T, p, d *simulated.Server) (Handed, error) {
	t.Helper()
	return handoff(limited(t), HandoffRequest{Dialect: "sglang", Model: "tiny", From: "p0", To: "d0", Prefill: p.URL(), Decode: d.URL(), Tokens: 200, Long: 600, Firsts: 1})
}

func TestHandoffTogether(t *testing.T) {
	p, d := bootRole(t, engine.RolePrefill, nil), bootRole(t, engine.RoleDecode, nil)
	h, err := handTogether(t, p, d)
	if err != nil || !h.equal() || !h.moved() || len(h.Common) != pairOutput || h.Long == nil || !h.Long.equal() || !h.Long.moved() || len(h.FirstS) != 2 || h.PrefillMS <= 0 || h.FirstMS <= 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	if found := judgePair(testFleet(), "p0", "d0", h); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	for name, pair := range map[string][2]*simulated.Server{"the other way round": {d, p}, "one role": {d, d}} {
		if h, err := handTogether(t, pair[0], pair[1]); err != nil || h.Skipped == "" || len(judgePair(testFleet(), "p0", "d0", h)) > 0 {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func TestHandoffTogetherFails(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		in   simulated.Injection
		says string
	}{
		"the prefilling leg":   {engine.RolePrefill, simulated.Injection{Kind: "status", Count: -1, Status: 500}, "500"},
		"the decoding leg":     {engine.RoleDecode, simulated.Injection{Kind: "status", Count: -1, Status: 500}, "500"},
		"a stream without end": {engine.RoleDecode, simulated.Injection{Kind: "eof", Count: -1, After: 2}, "[DONE]"},
	} {
		p, d := bootRole(t, engine.RolePrefill, nil), bootRole(t, engine.RoleDecode, nil)
		s := p
		if c.at == engine.RoleDecode {
			s = d
		}
		if err := s.Inject(c.in); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if h, err := handTogether(t, p, d); err == nil || !strings.Contains(err.Error(), c.says) || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// TestMeasureTogether measures both engines of a pair, each beside the other.
func TestMeasureTogether(t *testing.T) {
	p, d := bootRole(t, engine.RolePrefill, nil), bootRole(t, engine.RoleDecode, nil)
	few := fleet.Profiling{PrefillTokens: []int{64, 512, 1024}, PrefillRepeats: 1, DecodeRequests: []int{1, 3}, DecodeTokens: []int{32, 256}, OutputTokens: 8, PairTokens: 64}
	other := map[string]string{engine.RolePrefill: engine.RoleDecode, engine.RoleDecode: engine.RolePrefill}
	for _, c := range []struct {
		own, peer *simulated.Server
		role      string
	}{{p, d, engine.RolePrefill}, {d, p, engine.RoleDecode}} {
		q := ProfileRequest{IID: "e", URL: c.own.URL(), Dialect: "sglang", Model: "tiny", Points: few, Peer: &PeerAt{IID: "peer", URL: c.peer.URL(), Role: other[c.role]}}
		m, err := measure(limited(t), q)
		if err != nil || m.Role != c.role || m.Peer != "peer" || len(prefillCells(m.Samples)) != 3 || len(decodeCells(m.Samples)) != 4 || len(m.Beside)+len(m.Warm) > 0 {
			t.Fatalf("%s: %+v, %v", c.role, m, err)
		}
		l, err := look(limited(t), LookRequest{IID: "e", URL: c.own.URL(), Dialect: "sglang", Model: "tiny", PaceTokens: 64, Peer: q.Peer})
		if err != nil || len(l.Failed) > 0 || len(l.Pace) < paceRuns || len(l.Pace) > mostPace {
			t.Errorf("%s: looked %+v, %v", c.role, l, err)
		}
		a, err := abort(limited(t), DrillRequest{IID: "e", URL: c.own.URL(), Dialect: "sglang", Model: "tiny", Tokens: 64, Peer: q.Peer})
		if err != nil || !a.stopped() {
			t.Errorf("%s: aborted %+v, %v", c.role, a, err)
		}
		q.Peer = nil
		if _, err := measure(limited(t), q); err == nil || !strings.Contains(err.Error(), "no engine that answers has the other role") {
			t.Errorf("%s alone: %v", c.role, err)
		}
		q.Peer = &PeerAt{IID: "twin", URL: c.own.URL(), Role: other[c.role]}
		if _, err := measure(limited(t), q); !errors.Is(err, errRoles) {
			t.Errorf("%s with its like: %v", c.role, err)
		}
	}
	alone, err := measure(limited(t), ProfileRequest{IID: "e", URL: bootRole(t, engine.RoleNone, nil).URL(), Dialect: "sglang", Model: "tiny", Points: few})
	if err != nil || alone.Role != "" || len(alone.Beside) == 0 {
		t.Errorf("an engine without a role: %+v, %v", alone, err)
	}
}

func sglangFleet(roles ...string) fleet.Fleet {
	f := testFleet()
	f.Engine.Dialect, f.Engines = "sglang", nil
	for i, r := range roles {
		iid := fmt.Sprint("e", i)
		f.Engines = append(f.Engines, fleet.Engine{IID: iid, URL: "http://192.0.2.1:" + fmt.Sprint(8100+i), Role: r})
		f.Deploy.Engines[iid] = fleet.Place{Host: "h1"}
	}
	return f
}

// TestTogether gives each engine one of the other role, and both to itself.
func TestTogether(t *testing.T) {
	f := sglangFleet("prefill", "decode", "prefill", "decode", "decode")
	var got []string
	for _, e := range f.Engines {
		p, exclusive := together(f, e)
		got = append(got, p.IID)
		if !slices.Contains(exclusive, "engine:"+p.IID) || !slices.Contains(exclusive, "engine:"+e.IID) {
			t.Errorf("%s holds %v", e.IID, exclusive)
		}
	}
	if strings.Join(got, " ") != "e1 e0 e3 e2 e0" {
		t.Errorf("asked with %v", got)
	}
	lonely := sglangFleet("decode", "decode")
	if p, _ := together(lonely, lonely.Engines[0]); p != nil {
		t.Errorf("asked with %v", p)
	}
}

// TestJudgeTogether compares pairs that no unsplit run can speak for.
func TestJudgeTogether(t *testing.T) {
	h := func(common int) Handed {
		return Handed{Dialect: "sglang", Prompt: 200, Transfers: 1, Split: []int{1}, Again: []int{1}, Common: []int{common}}
	}
	skipped := Handed{Dialect: "sglang", Skipped: "roles"}
	for name, c := range map[string]struct {
		fleet fleet.Fleet
		e     map[record.Key]any
		want  []string
	}{
		"all alike":   {sglangFleet("prefill", "decode", "decode", "decode"), map[record.Key]any{pairKey("e0", "e1"): h(7), pairKey("e0", "e2"): h(7), pairKey("e0", "e3"): h(7), pairKey("e1", "e0"): skipped}, []string{"handoff-roles"}},
		"one differs": {sglangFleet("prefill", "decode", "decode", "decode"), map[record.Key]any{pairKey("e0", "e1"): h(7), pairKey("e0", "e2"): h(8), pairKey("e0", "e3"): h(7)}, []string{"handoff-output"}},
		"one pair":    {sglangFleet("prefill", "decode"), map[record.Key]any{pairKey("e0", "e1"): h(7), pairKey("e1", "e0"): skipped}, []string{"handoff-roles", "handoff-uncompared"}},
		"no pair":     {sglangFleet("decode", "decode"), map[record.Key]any{pairKey("e0", "e1"): skipped, pairKey("e1", "e0"): skipped}, []string{"handoff-none"}},
		"lent":        {sglangFleet("prefill", "decode"), map[record.Key]any{ProfileKey("e0"): Profiled{Role: "prefill", Peer: "e1"}}, []string{"profile-lent"}},
	} {
		var got []string
		for _, f := range judgeTogether(view(t, c.fleet, c.e)) {
			if f.Message == "" || f.Hint == "" {
				t.Errorf("%s: %+v says too little", name, f)
			}
			got = append(got, f.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
	if got := judgeLease(sglangFleet("decode"), "e0", Expired{Skipped: "no leases"}); len(got) != 1 || got[0].Code != "lease-none" || !got[0].Note {
		t.Errorf("found %+v", got)
	}
	twice := h(7)
	twice.Again = []int{2}
	if got := judgePair(testFleet(), "p0", "d0", twice); len(got) != 1 || got[0].Code != "handoff-output" {
		t.Errorf("found %+v", got)
	}
	still := h(7)
	still.Transfers = 0
	if got := judgePair(testFleet(), "p0", "d0", still); len(got) != 1 || got[0].Code != "handoff-counters" {
		t.Errorf("found %+v", got)
	}
}

// TestRolesAreSwitchedAndGivenBack where all processes were launched in one role.
func TestRolesAreSwitchedAndGivenBack(t *testing.T) {
	may := func(c *simulated.Config) { c.RoleSwitch = true }
	p, d := bootRole(t, engine.RolePrefill, may), bootRole(t, engine.RolePrefill, may)
	role := func(s *simulated.Server) string {
		t.Helper()
		c, err := engine.NewClient(s.URL(), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r, err := sglang.New().(engine.Switcher).Role(limited(t), c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	q := HandoffRequest{Dialect: "sglang", Model: "tiny", From: "p0", To: "d0", Prefill: p.URL(), Decode: d.URL(), Tokens: 200, Switch: true}
	for range 2 {
		h, err := handoff(limited(t), q)
		if err != nil || h.Skipped != "" || !h.equal() || !h.moved() {
			t.Fatalf("%+v, %v", h, err)
		}
		if role(p) != engine.RolePrefill || role(d) != engine.RolePrefill {
			t.Errorf("they play %s and %s now", role(p), role(d))
		}
	}
	a, err := abort(limited(t), DrillRequest{IID: "d0", URL: d.URL(), Dialect: "sglang", Model: "tiny", Tokens: 64, Peer: &PeerAt{IID: "p0", URL: p.URL(), Role: engine.RolePrefill}})
	if err != nil || !a.stopped() || role(d) != engine.RolePrefill {
		t.Errorf("aborted %+v, %v", a, err)
	}
	q.Decode = bootRole(t, engine.RolePrefill, nil).URL() // refuses to switch
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if h, err := handoff(ctx, q); err != nil || h.Skipped == "" || time.Since(begin) > 20*time.Second {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestWhoSwitchesRoles: gate F, from the fleet file's prefill to its decode engines; no probe of a
// fleet that serves.
func TestWhoSwitchesRoles(t *testing.T) {
	f := sglangFleet("prefill", "decode")
	asks := func(s gates.Step) bool { return strings.Contains(strings.Join(s.Argv, " "), `"switch_roles":true`) }
	if !asks(pairStep(f, "e0", "e1")) || asks(pairStep(f, "e1", "e0")) || asks(ProbeStep(f, "e0", "e1")) {
		t.Error("roles are switched elsewhere")
	}
	f.Engine.Dialect = "vllm"
	if asks(pairStep(f, "e0", "e1")) {
		t.Error("engines without roles are switched")
	}
}

func TestJudgeProbe(t *testing.T) {
	if _, err := JudgeProbe(testFleet(), "p0", "d0", []byte("no")); err == nil {
		t.Error("an answer that is none was judged")
	}
	found, err := JudgeProbe(testFleet(), "p0", "d0", []byte(`{"prompt_tokens":9,"unsplit_token_ids":[1],"split_token_ids":[2],"external_kv_tokens":8}`))
	if err != nil || len(found) != 1 || found[0].Code != "handoff-output" {
		t.Errorf("found %+v, %v", found, err)
	}
}

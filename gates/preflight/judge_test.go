package preflight

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Model: "tiny", SLO: fleet.SLO{TTFTS: 1, TPOTS: 0.05}, Profiles: fleet.Profiles{MaxDecodeFitMAPE: 0.1, MaxDecodeCVMAPE: 0.15},
		Engine:  fleet.Backend{Dialect: "vllm", FirstTokenTimeoutS: 2.5},
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://192.0.2.12:8100"}},
		Deploy: &fleet.Deploy{Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}}, Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h2"}},
			Router: fleet.Router{Host: "h1"}, Profile: points},
	}
}

// samples follow a curve exactly but for noise on the decode gaps.
func samples(noise float64) profile.Samples {
	var s profile.Samples
	for _, n := range []int{64, 512, 1024, 2048} {
		s.Prefill = append(s.Prefill, profile.PrefillSample{Tokens: n, Seconds: 0.01 + 0.0001*float64(n)})
	}
	for i, c := range [][2]int{{1, 64}, {1, 512}, {4, 256}, {4, 2048}, {8, 512}, {8, 4096}} {
		gap := 0.005 + 0.0001*float64(c[0]) + 0.000001*float64(c[1])
		if i%2 == 0 {
			gap *= 1 + noise
		}
		s.Decode = append(s.Decode, profile.DecodeSample{Requests: c[0], KVTokens: c[1], Gap: gap})
	}
	return s
}

// statement is what gate E records of an engine, as far as the store reads it.
func statement(t *testing.T, launch string) any {
	t.Helper()
	r, err := attest.NewResponse(attest.Document{Contract: fleet.Contract{EngineVersion: "1", Connector: "NixlConnector"}, Sources: map[string]string{"engine_version": "test", "connector": "test"}, Launch: map[string]any{"launch_sha256": launch}}, "1", 5)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(map[string]any{"predicate": map[string]any{"attestation": json.RawMessage(b)}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"bundle": map[string]any{"dsseEnvelope": map[string]any{"payload": base64.StdEncoding.EncodeToString(payload)}}}
}

func good(t *testing.T) map[record.Key]any {
	t.Helper()
	e := map[record.Key]any{}
	for _, iid := range []string{"p0", "d0"} {
		e[ProfileKey(iid)] = Profiled{IID: iid, Samples: samples(0), Capacity: 32000}
		e[record.NewKey("E", "statement", iid)] = statement(t, iid)
		e[LookKey(iid)] = Looked{IID: iid, Version: "1", Models: []string{"tiny"}, Root: "/m", Context: 4096, Block: 16, Dtype: "auto", Tokens: 9, TokenDigest: "aa", PaceTokens: 2048, Pace: []float64{0.21, 0.22}}
		e[AbortKey(iid)] = Aborted{IID: iid, Asked: 4000, Generated: 3, Freed: true}
	}
	for _, p := range [][2]string{{"p0", "d0"}, {"d0", "p0"}} {
		e[pairKey(p[0], p[1])] = Handed{From: p[0], To: p[1], Prompt: 200, Moved: 199, Split: []int{1, 2}, Unsplit: []int{1, 2}, FirstS: []float64{0.1, 0.2},
			Long: &Handed{Prompt: 2000, Moved: 1999, Split: []int{1, 2}, Unsplit: []int{1, 2}}}
	}
	s, err := store(view(t, testFleet(), e))
	if err != nil {
		t.Fatal(err)
	}
	e[StoreKey] = s
	return e
}

// view is what the judge sees of recorded evidence.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Time{}, evidence)
}

func TestJudge(t *testing.T) {
	handed := func(e map[record.Key]any, change func(*Handed)) {
		h := e[pairKey("p0", "d0")].(Handed)
		change(&h)
		e[pairKey("p0", "d0")] = h
	}
	looked := func(e map[record.Key]any, change func(*Looked)) {
		l := e[LookKey("d0")].(Looked)
		l.Failed = map[string]string{}
		change(&l)
		e[LookKey("d0")] = l
	}
	profiled := func(e map[record.Key]any, s profile.Samples) { e[ProfileKey("d0")] = Profiled{IID: "d0", Samples: s} }
	for name, c := range map[string]struct {
		change func(*fleet.Fleet, map[record.Key]any)
		want   []string // those of d0; "store" findings aside
	}{
		"good":         {func(*fleet.Fleet, map[record.Key]any) {}, nil},
		"other tokens": {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Split = []int{1, 3} }) }, []string{"handoff-output"}},
		"fewer tokens": {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Split = []int{1} }) }, []string{"handoff-output"}},
		"no tokens at all": {func(_ *fleet.Fleet, e map[record.Key]any) {
			handed(e, func(h *Handed) { h.Split, h.Unsplit = nil, nil })
		}, []string{"handoff-output"}},
		"counters stand still": {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Moved = 0 }) }, []string{"handoff-counters"}},
		"a failed transfer":    {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Failed = 1 }) }, []string{"handoff-counters"}},
		"nothing at all":       {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { *h = Handed{} }) }, []string{"handoff-counters", "handoff-output"}},
		"a long prompt's tokens": {func(_ *fleet.Fleet, e map[record.Key]any) {
			handed(e, func(h *Handed) { h.Long.Split = []int{7} })
		}, []string{"long-handoff-output"}},
		"a long prompt is computed again": {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Long.Moved = 20 }) }, []string{"long-handoff-counters"}},
		"the consumer restarts":           {func(_ *fleet.Fleet, e map[record.Key]any) { handed(e, func(h *Handed) { h.Restarted = true }) }, []string{"handoff-restart"}},
		"unreachable": {func(_ *fleet.Fleet, e map[record.Key]any) {
			e[LookKey("d0")] = Looked{Failed: map[string]string{checkReach: "refused"}}
		}, []string{"engine-unreachable"}},
		"not ready": {func(_ *fleet.Fleet, e map[record.Key]any) {
			looked(e, func(l *Looked) { l.Failed[checkReady] = "paused" })
		}, []string{"engine-not-ready"}},
		"no identity": {func(_ *fleet.Fleet, e map[record.Key]any) {
			looked(e, func(l *Looked) { l.Failed[checkIdentity] = "x" })
		}, []string{"engine-unidentified"}},
		"no layout": {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Failed[checkLayout] = "x" }) }, []string{"layout-unknown"}},
		"no tokenizer": {func(_ *fleet.Fleet, e map[record.Key]any) {
			looked(e, func(l *Looked) { l.Failed[checkTokenize] = "x" })
		}, []string{"tokenizer-silent"}},
		"no pace":            {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Failed[checkPace] = "x" }) }, []string{"pace-unknown"}},
		"no list of models":  {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Failed[checkModel] = "x" }) }, []string{"model-missing"}},
		"another model":      {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Models = []string{"big"} }) }, []string{"model-missing"}},
		"another block size": {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Block = 64 }) }, []string{"block-size-differs"}},
		"another path":       {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Root = "/n" }) }, []string{"model-path-differs"}},
		"another version":    {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Version = "2" }) }, []string{"version-differs"}},
		"another cache type": {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Dtype = "fp8" }) }, []string{"cache-dtype-differs"}},
		"another context":    {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.Context = 1 }) }, []string{"context-differs"}},
		"another tokenizer":  {func(_ *fleet.Fleet, e map[record.Key]any) { looked(e, func(l *Looked) { l.TokenDigest = "bb" }) }, []string{"tokenizer-differs"}},
		"slower than its own": {func(_ *fleet.Fleet, e map[record.Key]any) {
			looked(e, func(l *Looked) { l.Pace = []float64{0.5, 0.4} })
		}, []string{"slower-than-profile"}},
		"slower than its own, as parts of its sweep": {func(_ *fleet.Fleet, e map[record.Key]any) {
			looked(e, func(l *Looked) { l.Pace = []float64{0.5, 0.4} })
			s := samples(0)
			for _, p := range samples(0).Prefill { // a machine that was busy for a third of them
				s.Prefill = append(s.Prefill, p, profile.PrefillSample{Tokens: p.Tokens, Seconds: 5 * p.Seconds})
			}
			profiled(e, s)
		}, []string{"slower-than-profile (note)"}},
		"an attested version": {func(f *fleet.Fleet, _ map[record.Key]any) { f.EngineContract = &fleet.Contract{EngineVersion: "9"} }, []string{"version-differs"}},
		"goes on after its client": {func(_ *fleet.Fleet, e map[record.Key]any) {
			e[AbortKey("d0")] = Aborted{Asked: 4000, Generated: 1000}
		}, []string{"abort-ignored"}},
		"ends by itself": {func(_ *fleet.Fleet, e map[record.Key]any) {
			e[AbortKey("d0")] = Aborted{Asked: 40, Generated: 40, Freed: true}
		}, []string{"abort-ignored"}},
		"a lease for ever":     {func(_ *fleet.Fleet, e map[record.Key]any) { e[LeaseKey("d0")] = Expired{After: 0.2, Seconds: 600} }, []string{"lease-kept"}},
		"a lease that ends":    {func(_ *fleet.Fleet, e map[record.Key]any) { e[LeaseKey("d0")] = Expired{Counted: 1, Freed: true} }, nil},
		"a cohort beyond TPOT": {func(f *fleet.Fleet, _ map[record.Key]any) { f.SLO.TPOTS = 0.0091 }, []string{"slo-infeasible (note)"}},
		"a prompt beyond TTFT": {func(f *fleet.Fleet, _ map[record.Key]any) { f.SLO.TTFTS = 0.2 }, []string{"slo-infeasible (note)"}},
		"no samples":           {func(_ *fleet.Fleet, e map[record.Key]any) { profiled(e, profile.Samples{}) }, []string{"profile-unfit"}},
		"a prefill that is no curve": {func(_ *fleet.Fleet, e map[record.Key]any) {
			s := samples(0)
			s.Prefill[1].Seconds, s.Prefill[2].Seconds = 9, 0.001
			profiled(e, s)
		}, []string{"profile-unfit"}},
		"impossible gaps": {func(_ *fleet.Fleet, e map[record.Key]any) { s := samples(0); s.Decode[0].Gap = -1; profiled(e, s) }, []string{"profile-unfit"}},
		"noisy gaps":      {func(_ *fleet.Fleet, e map[record.Key]any) { profiled(e, samples(0.9)) }, []string{"decode-cross-validation", "decode-fit"}},
		"noise within larger limits": {func(f *fleet.Fleet, e map[record.Key]any) {
			f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 5, MaxDecodeCVMAPE: 5}
			profiled(e, samples(0.9))
		}, nil},
		"a TTFT limit below the floor": {func(f *fleet.Fleet, _ map[record.Key]any) { f.SLO.TTFTS = 0.009 }, []string{"slo-below-floor"}},
		"a TPOT limit below the floor": {func(f *fleet.Fleet, _ map[record.Key]any) { f.SLO.TPOTS = 0.004 }, []string{"slo-below-floor"}},
	} {
		f := testFleet()
		e := good(t)
		c.change(&f, e)
		got := Gate{}.Judge(view(t, f, e))
		var codes []string
		for _, x := range got {
			if x.Engine == "d0" {
				codes = append(codes, x.Code+map[bool]string{true: " (note)"}[x.Note])
			}
			if x.Message == "" || x.Hint == "" || x.Want == "" || x.Got == "" || x.Host != f.HostOf(x.Engine) || !strings.HasPrefix(x.Evidence, "F/") {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: found %v, want %v", name, codes, c.want)
		}
	}
	v := view(t, testFleet(), good(t))
	if state, fs := gates.Verdict(Gate{}, v, nil); state != record.VerdictPassed {
		t.Errorf("verdict %s, %v", state, fs)
	}
}

// TestJudgeOfMissingEvidence takes each piece away: the verdict is never passed.
func TestJudgeOfMissingEvidence(t *testing.T) {
	for _, k := range (Gate{}).Expect(testFleet()) {
		e := good(t)
		delete(e, k)
		state, missing := gates.Verdict(Gate{}, view(t, testFleet(), e), nil)
		if state != record.VerdictInconclusive || len(missing) != 1 || missing[0].Evidence != string(k) {
			t.Errorf("without %s: %s, %v", k, state, missing)
		}
	}
}

func TestExpect(t *testing.T) {
	f := testFleet()
	f.Engines = append(f.Engines, fleet.Engine{IID: "x"})
	keys := (Gate{}).Expect(f)
	seen := map[record.Key]bool{}
	for _, k := range keys {
		seen[k] = true
	}
	if len(keys) != 3*3+6+1 || len(seen) != len(keys) || !seen["F/pair/x/p0"] || !seen["F/pair/p0/x"] || seen["F/pair/x/x"] {
		t.Errorf("expects %v", keys)
	}
}

// TestStore binds each curve to the launch that its engine attested.
func TestStore(t *testing.T) {
	e := good(t)
	s, err := store(view(t, testFleet(), e))
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := profile.ReadStore(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := back.Row("p0")
	d, ok2 := back.Row("d0")
	if !ok || !ok2 || p.GenerationDigest == nil || d.GenerationDigest == nil || *p.GenerationDigest == *d.GenerationDigest || p.KVCapacityTokens == nil || *p.KVCapacityTokens != 32000 {
		t.Errorf("rows %+v, %+v", p, d)
	}
	for name, change := range map[string]func(map[record.Key]any){
		"no profile":    func(e map[record.Key]any) { delete(e, ProfileKey("d0")) },
		"no statement":  func(e map[record.Key]any) { delete(e, "E/statement/d0") },
		"unfit samples": func(e map[record.Key]any) { e[ProfileKey("d0")] = Profiled{} },
		"a bad payload": func(e map[record.Key]any) {
			e["E/statement/d0"] = map[string]any{"bundle": map[string]any{"dsseEnvelope": map[string]any{"payload": "!"}}}
		},
		"no attestation": func(e map[record.Key]any) {
			e["E/statement/d0"] = map[string]any{"bundle": map[string]any{"dsseEnvelope": map[string]any{"payload": "e30="}}}
		},
	} {
		e := good(t)
		change(e)
		if s, err := store(view(t, testFleet(), e)); err == nil {
			t.Errorf("%s: stored %+v", name, s)
		}
	}
}

// TestPlan keeps an engine out of two steps at one time.
func TestPlan(t *testing.T) {
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: testFleet(), Record: r, Progress: gates.Quiet{}}
	f, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]gates.Step{}
	for _, s := range f.Gates[0].Plan.Steps {
		steps[s.ID] = s
	}
	if len(steps) != 9 || f.Gates[0].Plan.Mutates() {
		t.Fatalf("%d steps", len(steps))
	}
	if s := steps["F/pair/p0/d0"]; !slices.Equal(s.Exclusive, []string{"engine:p0", "engine:d0"}) || s.Host != "h2" {
		t.Errorf("pair %+v", s)
	}
	if s := steps["F/profile/p0"]; !slices.Equal(s.Exclusive, []string{"engine:p0"}) || s.Host != "h1" {
		t.Errorf("profile %+v", s)
	}
	if s := steps["F/store"]; !slices.Equal(s.Needs, []string{"F/profile/p0", "F/profile/d0"}) || s.Local == nil {
		t.Errorf("store %+v", s)
	}
}

package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// plain is a fleet without a deploy section.
func plain(dialect string, servers ...*simulated.Server) fleet.Fleet {
	f := fleet.Fleet{Model: "tiny", Engine: fleet.Backend{Dialect: dialect}, SLO: fleet.SLO{TTFTS: 9, TPOTS: 9}, Profiles: fleet.Profiles{Path: "none", MaxDecodeFitMAPE: 9, MaxDecodeCVMAPE: 9}}
	for i, s := range servers {
		e := fleet.Engine{IID: fmt.Sprintf("e%d", i), Role: []string{fleet.RolePrefill, fleet.RoleDecode}[i%2]}
		if s != nil {
			e.URL = s.URL()
		}
		f.Engines = append(f.Engines, e)
	}
	return f
}

func directOf(f fleet.Fleet) *Direct {
	d := NewDirect(f)
	d.Fleet.Deploy.Profile.PrefillTokens = []int{64, 256, 600}
	d.Generation = func(_ context.Context, iid string, id engine.Identity) (string, error) {
		return fmt.Sprintf("sha256:%064x", len(iid)), nil
	}
	return d
}

func codesOf(found []record.Finding) string {
	var out []string
	for _, f := range found {
		out = append(out, f.Code)
	}
	return strings.Join(out, " ")
}

func TestPairsOf(t *testing.T) {
	for _, c := range []struct {
		n              int
		dialect, pairs string
		want           string
	}{
		{1, "vllm", fleet.PairsMesh, "[]"}, {1, "vllm", fleet.PairsRing, "[]"}, {3, "vllm", PairsNone, "[]"},
		{2, "vllm", fleet.PairsRing, "[[e0 e1] [e1 e0]]"}, {3, "vllm", fleet.PairsRing, "[[e0 e1] [e1 e2] [e2 e0]]"},
		{3, "vllm", fleet.PairsMesh, "[[e0 e1] [e1 e2] [e2 e0] [e0 e2] [e1 e0] [e2 e1]]"},
		{3, "sglang", fleet.PairsRing, "[[e0 e1] [e2 e1]]"}, {1, "sglang", fleet.PairsRing, "[]"}, {4, "sglang", fleet.PairsRing, "[[e0 e1] [e2 e3]]"},
		{4, "sglang", fleet.PairsMesh, "[[e0 e1] [e2 e3] [e0 e3] [e2 e1]]"},
	} {
		got, err := PairsOf(plain(c.dialect, make([]*simulated.Server, c.n)...), c.pairs)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%d %s engines, %s: %v, %v", c.n, c.dialect, c.pairs, got, err)
		}
	}
	if _, err := PairsOf(plain("vllm", nil), "star"); err == nil {
		t.Error("a star is known")
	}
}

// TestRunKeepsStepsApart: steps start when what they need is done, none shares what is exclusive,
// and nothing waits that could run.
func TestRunKeepsStepsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := directOf(plain("vllm", nil))
		step := func(id string, needs []string, exclusive ...string) gates.Step {
			return gates.Step{ID: id, Needs: needs, Exclusive: exclusive, Limit: fleet.Duration(time.Hour)}
		}
		steps := []gates.Step{step("a", nil, "x"), step("b", nil, "x", "y"), step("c", nil, "z"), step("d", []string{"c"}, "y"), step("bad", nil), step("e", []string{"bad"})}
		var mu sync.Mutex
		busy := map[string]bool{}
		begin := time.Now()
		at := map[string]time.Duration{}
		answers := d.run(t.Context(), steps, func(_ context.Context, s gates.Step) ([]byte, error) {
			mu.Lock()
			at[s.ID] = time.Since(begin)
			for _, x := range s.Exclusive {
				if busy[x] {
					t.Errorf("%s begins while %s is in use", s.ID, x)
				}
				busy[x] = true
			}
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			for _, x := range s.Exclusive {
				delete(busy, x)
			}
			if s.ID == "bad" {
				return nil, errors.New("no")
			}
			return []byte("{}"), nil
		})
		if len(answers) != len(steps) || time.Since(begin) > 2*time.Second+time.Millisecond && at["d"] != 2*time.Second && at["b"] != 2*time.Second {
			t.Errorf("%d answers, begun at %v, done after %v", len(answers), at, time.Since(begin))
		}
		for _, a := range answers {
			if (a.err != nil) != (a.step.ID == "bad" || a.step.ID == "e") {
				t.Errorf("%s: %v", a.step.ID, a.err)
			}
		}
		if _, ran := at["e"]; ran {
			t.Error("a step ran without what it needs")
		}
		slow := d.run(t.Context(), []gates.Step{{ID: "s", Limit: fleet.Duration(time.Second)}}, func(ctx context.Context, _ gates.Step) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if slow[0].err == nil || !strings.Contains(slow[0].err.Error(), "limit of 1s") {
			t.Errorf("a step without an end: %v", slow[0].err)
		}
	})
}

func TestCheckOfConcurrentEngines(t *testing.T) {
	d := directOf(plain("sglang", bootRole(t, engine.RolePrefill, nil), bootRole(t, engine.RoleDecode, nil)))
	got, err := d.Check(limited(t), Checking{Pairs: fleet.PairsRing, Drills: true})
	if err != nil || len(got.Failed) > 0 || len(got.Pairs) != 1 || got.Pairs[0].Transfers < 1 || len(got.Engines[1].Pace) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// A process whose live role is not the one of the file hands nothing over, and nothing passed.
	both := directOf(plain("sglang", bootRole(t, engine.RoleDecode, nil), bootRole(t, engine.RoleDecode, nil)))
	if got, err = both.Check(limited(t), Checking{Pairs: fleet.PairsMesh}); err != nil || len(got.Skipped) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestCheckAsksSidecars: an engine that nobody vouches for hands nothing over.
func TestCheckAsksSidecars(t *testing.T) {
	f := plain("vllm", boot(t, nil), boot(t, nil))
	f.Engines[0].AttestationURL, f.Engines[1].AttestationURL = "http://192.0.2.1/v1/attestation", "http://192.0.2.2/v1/attestation"
	d := directOf(f)
	d.Attest = func(_ context.Context, iid string, _ engine.Identity) error {
		if iid == "e1" {
			return errors.New("its sidecar attests another process")
		}
		return nil
	}
	got, err := d.Check(limited(t), Checking{Pairs: fleet.PairsMesh, Store: &profile.Store{}})
	if err != nil || codesOf(got.Failed) != "profile-missing engine-unattested" && codesOf(got.Failed) != "engine-unattested profile-missing" || len(got.Pairs) != 0 || len(got.Skipped) != 1+2 {
		t.Errorf("%s, skipped %+v, %v", codesOf(got.Failed), got.Skipped, err)
	}
}

func TestMeasureDirectly(t *testing.T) {
	s := boot(t, nil)
	f := plain("vllm", s, boot(t, nil))
	f.Engines[0].SharedDevice, f.Engines[1].SharedDevice = &fleet.SharedDevice{Group: "g"}, &fleet.SharedDevice{Group: "g"}
	d := directOf(f)
	d.Fleet.Deploy.Profile = points
	running, most := 0, 0
	d.Step = func(_ gates.Step, _ time.Duration, _ error, ended bool) {
		if running++; ended {
			running -= 2
		}
		most = max(most, running)
	}
	p, err := d.Measure(limited(t), nil)
	if err != nil || len(p.Engines) != 2 || len(p.Failed) != 0 || most != 1 || p.Engines["e0"].ProcessStart == 0 {
		t.Errorf("%d measured, %d at once on one device, %v, %v", len(p.Engines), most, p.Failed, err)
	}
	d.Generation = func(context.Context, string, engine.Identity) (string, error) { return "", errors.New("no sidecar") }
	if p, err := d.Measure(limited(t), []string{"e1"}); err != nil || len(p.Engines) != 0 || p.Failed["e1"] == nil || len(p.Failed) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestMeasureBesideLiveRoles: an engine with a role is measured beside one that has the other role now,
// whatever the file says, and no role is switched.
func TestMeasureBesideLiveRoles(t *testing.T) {
	may := func(c *simulated.Config) { c.RoleSwitch = true }
	moved, dead := bootRole(t, engine.RoleDecode, may), bootRole(t, engine.RolePrefill, nil)
	p, d := bootRole(t, engine.RolePrefill, may), bootRole(t, engine.RoleDecode, nil)
	dead.Stop()
	f := plain("sglang", moved, d, p, d, dead) // e0, e2 and e4 prefill, by the file
	f.Engines[3].IID = "e9"
	x := directOf(f)
	x.Fleet.Deploy.Profile = points
	var peers []string
	x.verbs = map[string]gates.HostVerb{"engine-profile": func(_ context.Context, raw json.RawMessage) (any, error) {
		var q ProfileRequest
		if err := json.Unmarshal(raw, &q); err != nil || q.Peer == nil {
			t.Errorf("%+v, %v", q, err)
			return nil, errors.New("no peer")
		}
		peers = append(peers, q.Peer.IID)
		l, err := look(limited(t), LookRequest{IID: q.IID, URL: q.URL, Dialect: q.Dialect, Model: q.Model, PaceTokens: 64, Peer: q.Peer})
		if err != nil || len(l.Failed) > 0 || len(l.Pace) == 0 {
			t.Errorf("beside %s: %+v, %v", q.Peer.IID, l, err)
		}
		return Profiled{IID: q.IID, Samples: samples(0)}, nil
	}}
	x.AsLive(limited(t))
	if got, err := x.Measure(limited(t), []string{"e1", "e9"}); err != nil || len(got.Engines) != 2 || fmt.Sprint(peers) != "[e2 e2]" {
		t.Errorf("beside %v: %+v, %v", peers, got.Failed, err)
	}
	c, err := engine.NewClient(moved.URL(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if role, err := roleOfProcess(limited(t), sglang.New(), c); role != engine.RoleDecode {
		t.Errorf("the moved engine has the role %q now, %v", role, err)
	}
}

// TestMeasureOfAnotherProcess: points of two processes are no profile.
func TestMeasureOfAnotherProcess(t *testing.T) {
	one, two := boot(t, nil), boot(t, func(c *simulated.Config) { c.EngineVersion = "0.31.0" })
	d := directOf(plain("vllm", one))
	d.verbs = map[string]gates.HostVerb{"engine-profile": func(context.Context, json.RawMessage) (any, error) {
		d.Fleet.Engines[0].URL = two.URL()
		return Profiled{IID: "e0", Samples: samples(0)}, nil
	}}
	p, err := d.Measure(limited(t), nil)
	if err != nil || len(p.Engines) != 0 || p.Failed["e0"] == nil || !strings.Contains(p.Failed["e0"].Error(), "changed while") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestMeasuresPeers: an engine with a role is measured together with one of the other role.
func TestMeasuresPeers(t *testing.T) {
	for dialect, want := range map[string]string{"vllm": "[e2]", "sglang": "[e1 e2]"} {
		got := directOf(plain(dialect, nil, nil, nil)).Measures([]string{"e2"})
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", dialect, got)
		}
	}
}

// TestJudgeBound compares a row with the live process.
func TestJudgeBound(t *testing.T) {
	f := plain("vllm", nil, nil)
	digest := fmt.Sprintf("sha256:%064d", 1)
	curve := profile.Curve{C: 1, Intercept: 1, MinRequests: 1, MaxRequests: 2, MinKVTokens: 1, MaxKVTokens: 9}
	row := profile.NewRow("e0", digest, curve, profile.Report{DecodeCV: 99})
	s := profile.NewStore(nil, row, profile.NewRow("e1", "", curve, profile.Report{}), profile.NewRow("x", digest, curve, profile.Report{}))
	for e, want := range map[string]string{"e0": "", "e1": "profile-stale", "e2": "profile-missing"} {
		if got := codesOf(judgeBound(f, e, s, digest)); got != want {
			t.Errorf("%s: %s, want %s", e, got, want)
		}
	}
	if got := codesOf(judgeStrangers(f, s)); got != "profile-extra" {
		t.Errorf("strangers: %s", got)
	}
	got := judgeRow(f, row, Looked{PaceTokens: 10, Pace: []float64{2}})
	if codesOf(got) != "decode-cross-validation slower-than-profile" || !got[0].Note || got[1].Note {
		t.Errorf("row: %+v", got)
	}
	f.SLO.TTFTS = 0.5
	if got := codesOf(judgeRow(f, row, Looked{})); !strings.HasPrefix(got, "slo-below-floor") {
		t.Errorf("row: %s", got)
	}
}

// TestJoin: points are neither lost nor made up, and equal measurements are one.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Measured {
			m := Measured{Generation: "g", Points: Profiled{IID: "e", Capacity: 9, Rounds: 1}}
			for _, n := range rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(t, name) {
				m.Points.Samples.Prefill = append(m.Points.Samples.Prefill, profile.PrefillSample{Tokens: n, Seconds: float64(n)})
			}
			return m
		}
		a, b := draw("a"), draw("b")
		count := len(a.Points.Samples.Prefill)
		if both, err := a.Join(a); err != nil || !reflect.DeepEqual(both, a) {
			t.Fatalf("with itself: %+v, %v", both, err)
		}
		both, err := a.Join(b)
		want := slices.Concat(a.Points.Samples.Prefill, b.Points.Samples.Prefill)
		if reflect.DeepEqual(a, b) {
			want = a.Points.Samples.Prefill
		}
		if err != nil || !slices.Equal(both.Points.Samples.Prefill, want) || len(a.Points.Samples.Prefill) != count {
			t.Fatalf("%+v, %v, want %v", both, err, want)
		}
		b.Generation = "other"
		if _, err := a.Join(b); err == nil {
			t.Fatal("points of two processes were joined")
		}
	})
}

func TestMerge(t *testing.T) {
	m := func(e, generation string) Measured {
		return Measured{Generation: generation, Points: Profiled{IID: e, Samples: samples(0)}}
	}
	with := func(model string, engines map[string]Measured) *Samples {
		s := NewSamples(model, nil)
		s.Engines = engines
		return &s
	}
	row := func(e string) profile.Row { return profile.NewRow(e, "", profile.Curve{}, profile.Report{}) }
	for name, c := range map[string]struct {
		sources []Source
		engines int
		rows    int
		says    string
	}{
		"apart":                        {[]Source{{Samples: with("m", map[string]Measured{"a": m("a", "g")})}, {Rows: []profile.Row{row("b")}}}, 1, 1, ""},
		"one engine twice":             {[]Source{{Samples: with("m", map[string]Measured{"a": m("a", "g")})}, {Samples: with("m", map[string]Measured{"a": m("a", "g")})}}, 1, 0, ""},
		"two processes":                {[]Source{{Samples: with("m", map[string]Measured{"a": m("a", "g")})}, {Samples: with("m", map[string]Measured{"a": m("a", "h")})}}, 0, 0, "two generations"},
		"another model":                {[]Source{{Samples: with("n", nil)}}, 0, 0, "model"},
		"a row beside points of it":    {[]Source{{Rows: []profile.Row{row("a")}, Samples: with("m", map[string]Measured{"a": m("a", "g")})}}, 1, 0, ""},
		"a row whose points are other": {[]Source{{Rows: []profile.Row{row("a")}}, {Samples: with("m", map[string]Measured{"a": m("a", "g")})}}, 0, 0, "no points stand beside"},
		"two rows":                     {[]Source{{Rows: []profile.Row{row("a")}}, {Rows: []profile.Row{row("a")}}}, 0, 0, "no points stand beside"},
	} {
		got, err := Merge("m", c.sources)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || len(got.Engines) != c.engines || len(got.Rows) != c.rows {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzReadSamples(f *testing.F) {
	s := NewSamples("m", map[string]any{"package": "narwhal"})
	s.Engines["a"] = Measured{Generation: "g", Points: Profiled{IID: "a", Samples: samples(0), Capacity: 9}}
	b, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"narwhal.profile-samples","schema_version":1,"engines":{"a":{"points":{"iid":"a","samples":{"prefill":[{"tokens":-1,"seconds":1e308}]}}}}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadSamples(bytes.NewReader(data))
		if err != nil {
			return
		}
		c := Compose(testFleet(), Profiling{Engines: s.Engines}, Kept{}, nil)
		if len(c.Fitted) != len(s.Engines) {
			t.Errorf("%d engines, %d fitted", len(s.Engines), len(c.Fitted))
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ReadSamples(bytes.NewReader(again)); err != nil || len(back.Engines) != len(s.Engines) {
			t.Errorf("read again: %v", err)
		}
	})
}

// TestRepeatsKeepWhatDoesNotHold: one handoff of three with other tokens is what the judge sees.
func TestRepeatsKeepWhatDoesNotHold(t *testing.T) {
	d := directOf(plain("vllm", nil, nil))
	asked := 0
	d.verbs = map[string]gates.HostVerb{"handoff": func(context.Context, json.RawMessage) (any, error) {
		asked++
		h := Handed{From: "e0", To: "e1", Prompt: 10, Moved: 10, Split: []int{1}, Unsplit: []int{1}, FirstS: []float64{0.1}}
		if asked == 2 {
			h.Split = []int{2}
		}
		return h, nil
	}}
	x := &checkup{Direct: d, Checking: Checking{Repeats: 3}}
	b, err := x.repeated(t.Context(), pairStep(d.Fleet, "e0", "e1"))
	var got CheckedPair
	if err == nil {
		err = json.Unmarshal(b, &got)
	}
	if err != nil || got.Repeats != 3 || len(got.FirstS) != 3 || got.equal() {
		t.Errorf("%+v, %v", got, err)
	}
}

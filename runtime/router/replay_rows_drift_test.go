package router

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/drift"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// steady is an engine whose tokens take long beside what a busy machine adds to them.
func steady() fleet.Simulated {
	s := quick()
	s.DecodeD, s.DecodeE = 0.01, 1e-5
	return s
}

// drifting judges windows of half a second.
func drifting(c *Config) {
	c.Fleet.Serving.Admission = "open"
	c.Fleet.Controller.MonitorIntervalS = 0.1
	c.Fleet.Recovery.LivenessEvery = 0
	c.Fleet.Recovery.Health = fleet.Health{WindowS: 0.5, DriftBand: 2, RelativeBand: 1.5, MinSamples: 2, ProbationWindows: 1, EvictWindows: 2, RecoveryWindows: 2, ProbationPenaltyS: 0.01}
}

// underLoad keeps every decode engine busy until the test ends.
func (b *testbed) underLoad(streams int) {
	raw, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 100, "ignore_eos": true, "stream": true})
	if err != nil {
		b.t.Fatal(err)
	}
	ask := string(raw)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(ask))
				if err != nil {
					b.t.Error(err)
					return
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	b.t.Cleanup(func() { stop(); all.Wait() })
}

// count reads a list of counts in the breaker's state.
func (b *testbed) count(list string, want map[string]any) int {
	for _, x := range b.state().Breaker[list].([]any) {
		m := x.(map[string]any)
		same := true
		for k, v := range want {
			same = same && m[k] == v
		}
		if same {
			return int(m["count"].(float64))
		}
	}
	return 0
}

// An engine that is slower than its band, beside even peers, is avoided, probed and only then
// ejected; it stays out while it is slow and returns when it is not.
func TestRow30SlowEngineIsProbedAndEjected(t *testing.T) {
	t.Parallel()
	b := startBed(t, 1, 3, steady(), drifting)
	b.underLoad(9)
	scored := func(iid string) bool {
		h, _ := b.state().Health[iid].(map[string]any)
		return h != nil && h["scored"].(float64) > 0
	}
	eventually(t, "all are scored", func() bool { return scored("d0") && scored("d1") && scored("d2") })
	b.inject("d1", simulated.Injection{Kind: "slow", Factor: 8})
	eventually(t, "d1 ejected", func() bool { return slices.Equal(b.state().Ejected, []string{"d1"}) })
	if b.count("ejections", map[string]any{"iid": "d1", "cause": causeDrift}) != 1 || b.count("probes", map[string]any{"iid": "d1", "kind": probeInference, "outcome": "failed"}) < 1 {
		t.Errorf("%v", b.state().Breaker)
	}
	b.inject("d1", simulated.Injection{Kind: "slow", Factor: 1})
	eventually(t, "d1 readmitted", func() bool { return len(b.state().Ejected) == 0 })
}

// What makes all engines slow ejects none.
func TestRow30OverloadEjectsNobody(t *testing.T) {
	t.Parallel()
	b := startBed(t, 1, 3, steady(), drifting)
	b.underLoad(9)
	scored := func() (n float64) {
		for _, h := range b.state().Health {
			n += h.(map[string]any)["scored"].(float64)
		}
		return n
	}
	eventually(t, "windows are scored", func() bool { return scored() >= 3 })
	for _, iid := range []string{"d0", "d1", "d2"} {
		b.inject(iid, simulated.Injection{Kind: "slow", Factor: 8})
	}
	before := scored()
	eventually(t, "windows are scored while slow", func() bool { return scored() >= before+12 })
	if s := b.state(); len(s.Ejected) != 0 || b.count("ejections", map[string]any{"cause": causeDrift}) != 0 {
		t.Errorf("ejected %v", s.Ejected)
	}
}

// windows feeds the windows of an engine by hand: n of them with a residual.
func (b *testbed) windows(at *float64, n int, residual map[string]float64) {
	o := b.router.own
	o.do(func() {
		for range 5 * n {
			*at += 0.1
			pass := drift.Pass{At: *at}
			for _, n := range o.nodes {
				pass.Engines = append(pass.Engines, drift.Sample{Engine: n.id, Residual: max(1, residual[n.id]), Out: n.ejected != "", Covered: o.spare(n)})
			}
			for _, v := range o.drifted(pass) {
				if x := o.node(v.Engine); v.Kind == drift.Suspect && x.verifying == "" {
					x.verifying = probeInference
					o.set.checkPace(x)
				}
			}
		}
	})
}

func byHand(c *Config) {
	drifting(c)
	c.Fleet.Controller.MonitorIntervalS = 3600
}

// Windows alone eject nobody: the engine answers its probe well.
func TestRow30WellProbeKeepsTheEngine(t *testing.T) {
	t.Parallel()
	b := startBed(t, 1, 3, steady(), byHand)
	at := 0.0
	b.windows(&at, 2, nil)
	b.windows(&at, 2, map[string]float64{"d1": 9})
	eventually(t, "d1 probed", func() bool {
		return b.count("probes", map[string]any{"iid": "d1", "kind": probeInference, "outcome": "passed"}) == 1
	})
	if s := b.state(); len(s.Ejected) != 0 || !slices.Equal(s.Probation, []string{"d1"}) {
		t.Errorf("ejected %v, on probation %v", s.Ejected, s.Probation)
	}
	var penalty float64
	b.router.own.do(func() { penalty = b.router.own.snapshot(0).Engines[2].Penalty })
	if penalty != 0.01 {
		t.Errorf("penalty %v", penalty)
	}
	b.windows(&at, 3, nil)
	if s := b.state(); len(s.Probation) != 0 {
		t.Errorf("still on probation: %v", s.Probation)
	}
}

// Of two engines that fail their probes at once one is ejected, and never the last that others
// do not cover.
func TestRow30EjectionsAreCapped(t *testing.T) {
	t.Parallel()
	b := startBed(t, 1, 5, steady(), byHand)
	slow := map[string]float64{"d1": 9, "d2": 9}
	for iid := range slow {
		b.inject(iid, simulated.Injection{Kind: "slow", Factor: 9})
	}
	at := 0.0
	b.windows(&at, 2, nil)
	b.windows(&at, 2, slow)
	eventually(t, "both probed", func() bool {
		return b.count("probes", map[string]any{"iid": "d1", "outcome": "failed"})+b.count("probes", map[string]any{"iid": "d2", "outcome": "failed"}) == 2
	})
	if s := b.state(); len(s.Ejected) != 1 || len(s.Probation) != 1 {
		t.Errorf("ejected %v, on probation %v", s.Ejected, s.Probation)
	}

	last := startBed(t, 1, 1, steady(), byHand, func(c *Config) {
		for i := range c.Fleet.Engines {
			c.Fleet.Engines[i].Pin = true
		}
	})
	last.inject("d0", simulated.Injection{Kind: "slow", Factor: 9})
	at = 0
	last.windows(&at, 2, nil)
	last.windows(&at, 6, map[string]float64{"d0": 9})
	last.router.own.do(func() {
		o := last.router.own
		o.paced(o.node("d0"), drift.Probe{At: at, Engine: "d0", Residual: 9, Peer: 1}, nil)
		if o.node("d0").ejected != "" || !o.node("d0").probation {
			t.Errorf("the last decode engine: ejected %q, probation %v", o.node("d0").ejected, o.node("d0").probation)
		}
	})
}

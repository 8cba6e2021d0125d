package engines

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// view is what the judge sees of recorded evidence.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Time{}, evidence)
}

// engineEvidence is what a good engine leaves.
type engineEvidence struct {
	ports  Ports
	launch gates.Launched
	live   Live
	cache  engine.CacheLayout
}

func goodEngine() engineEvidence {
	started := time.Unix(1764442262, 0)
	return engineEvidence{
		launch: gates.Launched{PID: 7, Launch: "l", BootID: "b", Ticks: 9, Started: started},
		live: Live{Ready: true, PID: 7, Launch: "l", BootID: "b", Ticks: 9, Version: "0.32.0", Models: []engine.Model{{ID: "tiny", Root: "/m/tiny"}},
			ProcessStart: 1764442264, ProbeText: "x y", ProbeTokens: []int{1, 2}},
		cache: engine.CacheLayout{BlockSize: 16, Blocks: 900, Dtype: "bf16", BytesPerBlock: 4096, Geometry: &engine.Geometry{Layers: 2, KVHeads: 2, HeadSize: 32, ElementBytes: 2}},
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		fleet  func(*fleet.Fleet)
		change func(*engineEvidence) // of d0
		want   []string
	}{
		"two good engines": {},
		"a taken port": {change: func(e *engineEvidence) {
			e.ports.Taken = []gates.Taken{{Address: "192.0.2.12:8100", Why: "address already in use"}}
		}, want: []string{"port-taken@d0"}},
		"not ready":             {change: func(e *engineEvidence) { e.live = Live{Reason: "the process has ended", Log: "x\nOut Of Memory\n"} }, want: []string{"engine-not-ready@d0"}},
		"restarted alike":       {change: func(e *engineEvidence) { e.live.PID, e.live.Ticks, e.live.ProcessStart = 8, 10, 1764449999 }},
		"another launch":        {change: func(e *engineEvidence) { e.live.Launch = "l2" }, want: []string{"engine-identity@d0"}},
		"started long before":   {change: func(e *engineEvidence) { e.live.ProcessStart = 1764442262 - 3600 }, want: []string{"engine-identity@d0"}},
		"a start of nonsense":   {change: func(e *engineEvidence) { e.live.ProcessStart = -1e300 }, want: []string{"engine-identity@d0"}},
		"another model":         {change: func(e *engineEvidence) { e.live.Models[0].ID = "big" }, want: []string{"model-differs@d0"}},
		"no model":              {change: func(e *engineEvidence) { e.live.Models = nil }, want: []string{"model-differs@d0", "model-path-differs@d0"}},
		"not ready for another": {change: func(e *engineEvidence) { e.live.Ready, e.live.Models[0].ID = false, "big" }, want: []string{"model-differs@d0"}},
		"another version":       {change: func(e *engineEvidence) { e.live.Version = "0.33.0" }, want: []string{"versions-differ@d0"}},
		"not the contract's version": {
			fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{EngineVersion: "0.31.0"} },
			want:  []string{"version-differs@d0", "version-differs@p0"},
		},
		"a contract without a version": {fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{KVHeads: 2} }},
		"another model path":           {change: func(e *engineEvidence) { e.live.Models[0].Root = "/m/other" }, want: []string{"model-path-differs@d0"}},
		"another text":                 {change: func(e *engineEvidence) { e.live.ProbeText = "x z" }, want: []string{"output-differs@d0"}},
		"other tokens":                 {change: func(e *engineEvidence) { e.live.ProbeTokens = []int{1, 3} }, want: []string{"output-differs@d0"}},
		"an unknown cache":             {change: func(e *engineEvidence) { e.cache.BytesPerBlock = 0 }, want: []string{"cache-layout-differs@d0", "cache-size-unknown@d0"}},
		"another block size":           {change: func(e *engineEvidence) { e.cache.BlockSize = 32 }, want: []string{"cache-layout-differs@d0"}},
		"another dtype":                {change: func(e *engineEvidence) { e.cache.Dtype = "fp8" }, want: []string{"cache-layout-differs@d0"}},
		"another geometry":             {change: func(e *engineEvidence) { e.cache.Geometry.Layers = 3 }, want: []string{"cache-layout-differs@d0"}},
		"no geometry":                  {change: func(e *engineEvidence) { e.cache.Geometry = nil }, want: []string{"cache-layout-differs@d0"}},
		"more blocks":                  {change: func(e *engineEvidence) { e.cache.Blocks = 1000 }}, // memory may differ
	} {
		f := testFleet()
		if c.fleet != nil {
			c.fleet(&f)
		}
		evidence := map[record.Key]any{}
		for _, iid := range []string{"p0", "d0"} {
			e := goodEngine()
			if c.change != nil && iid == "d0" {
				c.change(&e)
			}
			evidence[portsKey(iid)], evidence[launchKey(iid)], evidence[liveKey(iid)], evidence[cacheKey(iid)] = e.ports, e.launch, e.live, e.cache
		}
		v := view(t, f, evidence)
		got := Gate{}.Judge(v)
		var codes []string
		for _, x := range got {
			codes = append(codes, x.Code+"@"+x.Engine)
			if x.Host != f.HostOf(x.Engine) || x.Message == "" || x.Hint == "" || x.Want == "" || x.Got == "" || !strings.HasPrefix(x.Evidence, "C/") {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: found %v, want %v", name, codes, c.want)
		}
		if state, _ := gates.Verdict(Gate{}, v, nil); (state == record.VerdictPassed) != (len(c.want) == 0) {
			t.Errorf("%s: verdict %s", name, state)
		}
	}
}

func TestJudgeOfMissingEvidence(t *testing.T) {
	e := goodEngine()
	v := view(t, testFleet(), map[record.Key]any{portsKey("p0"): e.ports, launchKey("p0"): e.launch, liveKey("p0"): e.live, cacheKey("p0"): e.cache})
	if state, missing := gates.Verdict(Gate{}, v, nil); state != record.VerdictInconclusive || len(missing) != 4 {
		t.Errorf("verdict %s, %d missing", state, len(missing))
	}
}

// TestFindingsArePrintable has an engine whose words steer a terminal.
func TestFindingsArePrintable(t *testing.T) {
	e := goodEngine()
	e.live.Models[0].ID = "big\x1b[2J"
	e.live.Models[0].Root = strings.Repeat("r", 5000)
	e.live.Ready = true
	good := goodEngine()
	v := view(t, testFleet(), map[record.Key]any{
		portsKey("p0"): good.ports, launchKey("p0"): good.launch, liveKey("p0"): good.live, cacheKey("p0"): good.cache,
		portsKey("d0"): e.ports, launchKey("d0"): e.launch, liveKey("d0"): e.live, cacheKey("d0"): e.cache,
	})
	for _, f := range (Gate{}).Judge(v) {
		if s := f.Message + f.Want + f.Got; strings.Contains(s, "\x1b") || len(s) > 3000 {
			t.Errorf("finding %.200q", s)
		}
	}
}

func TestHintFromLog(t *testing.T) {
	for log, want := range map[string]string{
		"":                                      "look at the engine's log",
		"a\nCUDA OUT OF MEMORY. x\n":            "the GPU has too little memory",
		"OSError: Address already in use":       "another process holds a port",
		"exec: executable file not found in $P": "not on the host's PATH",
		"first\nthe last \x1b[31mline\n\n":      "the end of its log: the last [31mline",
	} {
		if got := hintFromLog(log); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

package engines

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/engines/cause"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
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
	heard  Listener
	cache  Cache
}

func (e engineEvidence) into(evidence map[record.Key]any, iid string) {
	evidence[portsKey(iid)], evidence[launchKey(iid)], evidence[liveKey(iid)], evidence[listenerKey(iid)], evidence[cacheKey(iid)] = e.ports, e.launch, e.live, e.heard, e.cache
}

func goodEngine() engineEvidence {
	started := time.Unix(1764442262, 0)
	return engineEvidence{
		launch: gates.Launched{PID: 7, Launch: "l", BootID: "b", Ticks: 9, Started: started},
		live: Live{Ready: true, PID: 7, Launch: "l", BootID: "b", Ticks: 9, Version: "0.32.0", Models: []engine.Model{{ID: "tiny", Root: "/m/tiny"}},
			ProcessStart: 1764442264, ProbeText: "x y", ProbeTokens: []int{1, 2}},
		heard: Listener{Known: true, Sockets: []Socket{{Address: "192.0.2.12:8100", Inode: 4, PID: 7, By: bySession}}},
		cache: Cache{CacheLayout: engine.CacheLayout{BlockSize: 16, Blocks: 900, Dtype: "bf16", BytesPerBlock: 4096, Geometry: &engine.Geometry{Layers: 2, KVHeads: 2, HeadSize: 32, ElementBytes: 2}},
			Ranks: []RankCache{{Name: "TP0", Memory: 1}, {Name: "engine 0", BlockSize: 16, Dtype: "bf16"}}},
	}
}

// planned is the digest of what an engine of the fleet shall run.
func planned(t *testing.T, iid string) string {
	t.Helper()
	f := testFleet()
	s, err := Spec(f, resolve(t, f, iid))
	if err != nil {
		t.Fatal(err)
	}
	return s.Digest()
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
		"not ready":      {change: func(e *engineEvidence) { e.live = Live{Reason: "the process has ended", Log: "x\nOut Of Memory\n"} }, want: []string{"engine-not-ready@d0"}},
		"run as planned": {change: func(e *engineEvidence) { e.launch.Spec = planned(t, "d0") }},
		"run otherwise": {change: func(e *engineEvidence) {
			e.launch.Spec = strings.Repeat("0", 64)
			e.launch.Launch = resolve(t, testFleet(), "d0").Digest()
			e.live.Launch = e.launch.Launch
		}, want: []string{"launch-differs@d0"}},
		"its log tells why": {change: func(e *engineEvidence) {
			e.live = Live{Reason: "the process has ended", Cause: &cause.Found{Code: "gpu-memory", Line: "CUDA out of memory", Number: 3}}
		}, want: []string{"gpu-memory@d0"}},
		"a cause of another version": {change: func(e *engineEvidence) {
			e.live = Live{Reason: "the process has ended", Cause: &cause.Found{Code: "of-tomorrow"}}
		}, want: []string{"engine-not-ready@d0"}},
		"a stranger listens": {change: func(e *engineEvidence) { e.heard.Sockets[0].By = "" }, want: []string{"listener-foreign@d0"}},
		"a stranger on the side channel": {change: func(e *engineEvidence) {
			e.heard.Sockets = append(e.heard.Sockets, Socket{Address: "192.0.2.12:5600", Inode: 9, PID: 1})
		}, want: []string{"listener-foreign@d0"}},
		"no side channel": {change: func(e *engineEvidence) { e.heard.Sockets = append(e.heard.Sockets, Socket{Address: "192.0.2.12:5600"}) }},
		"nobody listens":  {change: func(e *engineEvidence) { e.heard.Sockets = []Socket{{Address: "[2001:db8::12]:8100"}} }, want: []string{"listener-missing@d0"}},
		"another user's process listens": {change: func(e *engineEvidence) {
			e.heard.Sockets[0] = Socket{Address: "192.0.2.12:8100", Inode: 4, Hidden: true}
		}, want: []string{"listener-unproven@d0"}},
		"ended while it was looked for": {change: func(e *engineEvidence) { e.heard = Listener{Why: "the process has ended"} }, want: []string{"listener-unproven@d0"}},
		"no Linux":                      {change: func(e *engineEvidence) { e.heard = Listener{Why: process.ErrNoProc.Error() + ": x"} }},
		"restarted alike":               {change: func(e *engineEvidence) { e.live.PID, e.live.Ticks, e.live.ProcessStart = 8, 10, 1764449999 }},
		"another launch":                {change: func(e *engineEvidence) { e.live.Launch = "l2" }, want: []string{"engine-identity@d0"}},
		"started long before":           {change: func(e *engineEvidence) { e.live.ProcessStart = 1764442262 - 3600 }, want: []string{"engine-identity@d0"}},
		"a start of nonsense":           {change: func(e *engineEvidence) { e.live.ProcessStart = -1e300 }, want: []string{"engine-identity@d0"}},
		"another model":                 {change: func(e *engineEvidence) { e.live.Models[0].ID = "big" }, want: []string{"model-differs@d0"}},
		"no model":                      {change: func(e *engineEvidence) { e.live.Models = nil }, want: []string{"model-differs@d0", "model-path-differs@d0"}},
		"not ready for another":         {change: func(e *engineEvidence) { e.live.Ready, e.live.Models[0].ID = false, "big" }, want: []string{"model-differs@d0"}},
		"another version":               {change: func(e *engineEvidence) { e.live.Version = "0.33.0" }, want: []string{"versions-differ@d0"}},
		"not the contract's version": {
			fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{EngineVersion: "0.31.0"} },
			want:  []string{"version-differs@d0", "version-differs@p0"},
		},
		"a contract without a version": {fleet: func(f *fleet.Fleet) { f.EngineContract = &fleet.Contract{KVHeads: 2} }},
		"another model path":           {change: func(e *engineEvidence) { e.live.Models[0].Root = "/m/other" }, want: []string{"model-path-differs@d0"}},
		"another text":                 {change: func(e *engineEvidence) { e.live.ProbeText = "x z" }, want: []string{"output-differs@d0"}},
		"other tokens":                 {change: func(e *engineEvidence) { e.live.ProbeTokens = []int{1, 3} }, want: []string{"output-differs@d0"}},
		"an unknown cache":             {change: func(e *engineEvidence) { e.cache.BytesPerBlock = 0 }, want: []string{"cache-layout-differs@d0", "cache-size-unknown@d0"}},
		"a rank of another block size": {change: func(e *engineEvidence) { e.cache.Ranks[1].BlockSize = 32 }, want: []string{"cache-ranks-differ@d0"}},
		"another block size":           {change: func(e *engineEvidence) { e.cache.BlockSize, e.cache.Ranks = 32, nil }, want: []string{"cache-layout-differs@d0"}},
		"another dtype":                {change: func(e *engineEvidence) { e.cache.Dtype, e.cache.Ranks = "fp8", nil }, want: []string{"cache-layout-differs@d0"}},
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
			e.into(evidence, iid)
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
	v := view(t, testFleet(), map[record.Key]any{portsKey("p0"): e.ports, launchKey("p0"): e.launch, liveKey("p0"): e.live, listenerKey("p0"): e.heard, cacheKey("p0"): e.cache})
	if state, missing := gates.Verdict(Gate{}, v, nil); state != record.VerdictInconclusive || len(missing) != 5 {
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
	evidence := map[record.Key]any{}
	good.into(evidence, "p0")
	e.into(evidence, "d0")
	v := view(t, testFleet(), evidence)
	for _, f := range (Gate{}).Judge(v) {
		if s := f.Message + f.Want + f.Got; strings.Contains(s, "\x1b") || len(s) > 3000 {
			t.Errorf("finding %.200q", s)
		}
	}
}

func TestEndOfLog(t *testing.T) {
	for log, want := range map[string]string{
		"":                                 "look at the engine's log",
		"first\nthe last \x1b[31mline\n\n": "the end of its log: the last [31mline",
	} {
		if got := endOf(log); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

// TestEveryCauseIsAFinding names each cause that a log can tell.
func TestEveryCauseIsAFinding(t *testing.T) {
	for _, c := range cause.Causes {
		e := goodEngine()
		e.live = Live{Reason: "the process has ended", Cause: &cause.Found{Code: c.Code, Line: "the line", Number: 7, Sure: true}}
		v := view(t, testFleet(), map[record.Key]any{portsKey("p0"): e.ports, launchKey("p0"): e.launch, liveKey("p0"): e.live})
		got := Gate{}.Judge(v)
		if len(got) != 1 || got[0].Code != c.Code || !strings.Contains(got[0].Message, c.Says) || !strings.Contains(got[0].Hint, c.Hint) || !strings.Contains(got[0].Hint, "line 7 of run/engine-p0.log: the line") {
			t.Errorf("%s: %+v", c.Code, got)
		}
	}
}

// TestOutliersAreNamed names the few that differ from the many, in whatever order.
func TestOutliersAreNamed(t *testing.T) {
	f := testFleet()
	f.Engines = append(f.Engines, fleet.Engine{IID: "d1", URL: "http://192.0.2.12:8101"})
	f.Deploy.Engines["d1"] = fleet.Place{Host: "h2", Launch: "l"}
	for _, odd := range f.EngineIDs() {
		evidence := map[record.Key]any{}
		for _, iid := range f.EngineIDs() {
			e := goodEngine()
			if iid == odd {
				e.live.ProbeTokens = []int{9}
			}
			e.into(evidence, iid)
		}
		got := Gate{}.Judge(view(t, f, evidence))
		if len(got) != 1 || got[0].Code != "output-differs" || got[0].Engine != odd {
			t.Errorf("%s differs: %+v", odd, got)
		}
	}
}

// TestRankThatFails names the cause that the log of a further rank tells, on its host.
func TestRankThatFails(t *testing.T) {
	f := testFleet()
	f.Deploy.Hosts["h3"] = fleet.Host{Root: "/opt/n"}
	f.Deploy.Engines["d0"] = fleet.Place{Host: "h2", Launch: "l", Workers: []string{"h3"}}
	evidence := map[record.Key]any{}
	for _, iid := range f.EngineIDs() {
		goodEngine().into(evidence, iid)
	}
	evidence[rankKey("d0", 1)] = gates.Launched{Name: "engine-d0-rank-1", Launch: "l"}
	evidence[joinedKey("d0", 1)] = Live{Ready: true}
	if got := (Gate{}).Judge(view(t, f, evidence)); len(got) != 0 {
		t.Errorf("a good rank: %+v", got)
	}
	evidence[joinedKey("d0", 1)] = Live{Reason: "the process has ended", Cause: &cause.Found{Code: "collective-failed", Line: "NCCL error", Number: 9}}
	got := Gate{}.Judge(view(t, f, evidence))
	if len(got) != 1 || got[0].Code != "collective-failed" || got[0].Host != "h3" || got[0].Evidence != "C/joined/d0/1" || !strings.Contains(got[0].Hint, "run/engine-d0-rank-1.log") || !strings.HasPrefix(got[0].Message, "rank 1: ") {
		t.Errorf("found %+v", got)
	}
	delete(evidence, joinedKey("d0", 1))
	if state, missing := gates.Verdict(Gate{}, view(t, f, evidence), nil); state != record.VerdictInconclusive || len(missing) != 1 {
		t.Errorf("without its evidence: %s, %v", state, missing)
	}
}

package fabric

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "p1", URL: "http://192.0.2.11:8101"}, {IID: "d0", URL: "http://192.0.2.12:8100"}, {IID: "d1", URL: "http://192.0.2.13:8100"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n", FabricPort: 5555}, "h3": {Root: "/opt/n", FabricAddress: "198.51.100.3"}, "h4": {Root: "/opt/n"}},
			Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "p1": {Host: "h1"}, "d0": {Host: "h2"}, "d1": {Host: "h3"}}, Router: fleet.Router{Host: "h4"},
			Fabric: fleet.Fabric{Interface: "eth1", PromptTokens: 8192, HandoffsPerS: 1, Headroom: 1.25, MinGbps: 8, Sample: fleet.Duration(time.Second), Streams: 4, Port: 5201},
		},
	}
}

var layout = engine.CacheLayout{BlockSize: 16, BytesPerBlock: 1 << 20, Blocks: 9}

// view is what the judge sees of recorded evidence.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Time{}, evidence)
}

// good is the evidence of a fabric that carries its budget.
func good(t *testing.T, f fleet.Fleet) map[record.Key]any {
	t.Helper()
	b, err := BudgetOf(f.Deploy.Fabric, layout)
	if err != nil {
		t.Fatal(err)
	}
	out := map[record.Key]any{budgetKey: b, "C/cache/p0": layout}
	for _, e := range Rounds(f.EngineHosts()) {
		out[edgeKey(e.From, e.To)] = Sample{From: e.From, To: e.To, Gbps: 9, RouteFrom: "eth1 192.0.2.1", RouteTo: "eth1 192.0.2.2"}
	}
	return out
}

func TestJudge(t *testing.T) {
	edge := func(e map[record.Key]any, a, b string, change func(*Sample)) {
		s := e[edgeKey(a, b)].(Sample)
		change(&s)
		e[edgeKey(a, b)] = s
	}
	for name, c := range map[string]struct {
		change func(*fleet.Fleet, map[record.Key]any)
		want   []string
	}{
		"good":        {func(*fleet.Fleet, map[record.Key]any) {}, nil},
		"a slow edge": {func(_ *fleet.Fleet, e map[record.Key]any) { edge(e, "h1", "h3", func(s *Sample) { s.Gbps = 3.1 }) }, []string{"edge-slow@h1"}},
		"just enough": {func(_ *fleet.Fleet, e map[record.Key]any) { edge(e, "h1", "h3", func(s *Sample) { s.Gbps = 8 }) }, nil},
		"no rate":     {func(_ *fleet.Fleet, e map[record.Key]any) { edge(e, "h2", "h1", func(s *Sample) { *s = Sample{} }) }, []string{"edge-interface@h1", "edge-interface@h2", "edge-slow@h2"}},
		"another way": {func(_ *fleet.Fleet, e map[record.Key]any) {
			edge(e, "h1", "h2", func(s *Sample) { s.RouteFrom = "eth0 198.51.100.1" })
		}, []string{"edge-interface@h1"}},
		"another way back": {func(_ *fleet.Fleet, e map[record.Key]any) {
			edge(e, "h1", "h2", func(s *Sample) { s.RouteTo = "unknown" })
		}, []string{"edge-interface@h2"}},
		"any way": {func(f *fleet.Fleet, e map[record.Key]any) {
			f.Deploy.Fabric.Interface = ""
			edge(e, "h1", "h2", func(s *Sample) { s.RouteFrom = "eth0 x" })
		}, nil},
		"a softened budget": {func(_ *fleet.Fleet, e map[record.Key]any) {
			b := e[budgetKey].(Budget)
			b.Floor, b.Required = 1, 1
			e[budgetKey] = b
		}, []string{"budget-differs@"}},
		"another cache layout": {func(_ *fleet.Fleet, e map[record.Key]any) {
			e["C/cache/p0"] = engine.CacheLayout{BlockSize: 16, BytesPerBlock: 1 << 30}
		}, []string{"budget-differs@"}},
		"a cache of unknown size": {func(_ *fleet.Fleet, e map[record.Key]any) { e["C/cache/p0"] = engine.CacheLayout{BlockSize: 16} }, []string{"budget-differs@"}},
		"no budget":               {func(_ *fleet.Fleet, e map[record.Key]any) { delete(e, budgetKey) }, nil}, // the runner's to report
	} {
		f := testFleet()
		e := good(t, f)
		c.change(&f, e)
		v := view(t, f, e)
		got := Gate{}.Judge(v)
		var codes []string
		for _, x := range got {
			codes = append(codes, x.Code+"@"+x.Host)
			if x.Message == "" || x.Hint == "" || x.Want == "" || x.Got == "" || x.Evidence == "" {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: found %v, want %v", name, codes, c.want)
		}
		state, _ := gates.Verdict(Gate{}, v, nil)
		if passed := state == record.VerdictPassed; passed != (len(c.want) == 0 && name != "no budget") {
			t.Errorf("%s: verdict %s", name, state)
		}
	}
}

func TestFindingNamesBothRates(t *testing.T) {
	f := testFleet()
	e := good(t, f)
	e[edgeKey("h1", "h3")] = Sample{Gbps: 3.1, RouteFrom: "eth1 a", RouteTo: "eth1 b"}
	got := Gate{}.Judge(view(t, f, e))
	if len(got) != 1 || got[0].Message != "edge h1 → h3: 3.1 Gbit/s measured, 8 Gbit/s required" {
		t.Errorf("found %+v", got)
	}
}

func TestFactsAreTheRoutesOfBothEnds(t *testing.T) {
	b, err := json.Marshal(Sample{RouteFrom: "eth1 a", RouteTo: "eth1 b"})
	if err != nil {
		t.Fatal(err)
	}
	got := Gate{}.Facts(edgeKey("h1", "h2"), b)
	if got["host/h1/route/h2"] != "eth1 a" || got["host/h2/route/h1"] != "eth1 b" || len(got) != 2 {
		t.Errorf("facts %v", got)
	}
	if (Gate{}).Facts(budgetKey, b) != nil || (Gate{}).Facts(edgeKey("h1", "h2"), []byte("x")) != nil {
		t.Error("facts of something else")
	}
}

// TestPlan measures every directed edge between engine hosts, not the router's, and closes
// each tester that it opens.
func TestPlan(t *testing.T) {
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := testFleet()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}}
	forecast, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]gates.Step{}
	for _, s := range forecast.Gates[0].Plan.Steps {
		steps[s.ID] = s
		if strings.Contains(s.ID, "h4") {
			t.Errorf("step %s touches a host without engines", s.ID)
		}
	}
	if len(steps) != 1+3+6+3 {
		t.Errorf("%d steps", len(steps))
	}
	for _, h := range []string{"h1", "h2", "h3"} {
		open, closing := steps["D/tester/"+h], steps["D/stop/"+h]
		if open.Undo == nil || !closing.Last || !slices.Equal(closing.Needs, []string{open.ID}) || closing.Check == nil {
			t.Errorf("tester of %s: %+v, %+v", h, open, closing)
		}
	}
	e := steps["D/edge/h1/h2"]
	if !slices.Equal(e.Exclusive, []string{"send:h1", "receive:h2"}) || e.Host != "h1" || !slices.Equal(e.Needs, []string{"D/tester/h2"}) {
		t.Errorf("edge %+v", e)
	}
	for host, want := range map[string]string{"h1": "192.0.2.11:5201", "h2": "192.0.2.12:5555", "h3": "198.51.100.3:5201"} {
		if got := Address(f, host); got != want {
			t.Errorf("the tester of %s listens on %s, want %s", host, got, want)
		}
	}
}

// TestPlanRefusesAnUnmeasuredTransport does not measure one thing and promise another.
func TestPlanRefusesAnUnmeasuredTransport(t *testing.T) {
	for transport, want := range map[string]problem.Status{"": problem.Success, "tcp": problem.Success, "rdma": problem.Invalid} {
		f := testFleet()
		f.Deploy.Fabric.Transport = transport
		_, err := Gate{}.Plan(t.Context(), view(t, f, map[record.Key]any{}))
		if got := problem.StatusOf(err); got != want {
			t.Errorf("%q: %s, %v", transport, got, err)
		}
	}
}

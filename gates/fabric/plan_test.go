package fabric

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func planned(t testing.TB, f fleet.Fleet) []gates.Step {
	t.Helper()
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}}
	forecast, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return forecast.Gates[0].Plan.Steps
}

// TestPlan measures every pair of engine hosts, not the router's, and closes each tester
// that it opens.
func TestPlan(t *testing.T) {
	f := testFleet(3)
	h := f.Deploy.Hosts["h2"]
	h.FabricPort = 5555
	f.Deploy.Hosts["h2"] = h
	steps := map[string]gates.Step{}
	for _, s := range planned(t, f) {
		steps[s.ID] = s
		if strings.Contains(s.ID, "router") {
			t.Errorf("step %s touches a host without engines", s.ID)
		}
	}
	if len(steps) != 1+3+3+3+3 {
		t.Errorf("%d steps", len(steps))
	}
	for _, h := range names(3) {
		open, closing, all := steps["D/tester/"+h], steps["D/stop/"+h], steps["D/incast/"+h]
		if open.Undo == nil || !closing.Last || !slices.Equal(closing.Needs, []string{open.ID}) || closing.Check == nil {
			t.Errorf("tester of %s: %+v, %+v", h, open, closing)
		}
		if all.Host != h || len(all.Needs) != 2 || len(all.Exclusive) != 3 || all.Yields != incastKey(h) {
			t.Errorf("incast of %s: %+v", h, all)
		}
	}
	p := steps["D/pair/h0/h2"]
	if !slices.Equal(p.Exclusive, []string{"fabric:h0", "fabric:h2"}) || p.Host != "h0" || !slices.Equal(p.Needs, []string{"D/tester/h2"}) || p.Yields != "D/pair/h0/h2" {
		t.Errorf("pair %+v", p)
	}
	for host, want := range map[string]string{"h0": "192.0.2.10:5201", "h2": "192.0.2.12:5555"} {
		if got := Address(f, host); got != want {
			t.Errorf("the tester of %s listens on %s, want %s", host, got, want)
		}
	}
	f.Deploy.Fabric.Incast = false
	if got := planned(t, f); len(got) != 1+2+3+2 {
		t.Errorf("without incast: %d steps", len(got))
	}
}

// TestPlanNamesTheToolsCommands: the server's command stands in the tester's, the client's
// in the measuring step.
func TestPlanNamesTheToolsCommands(t *testing.T) {
	for transport, c := range map[string]struct {
		tool  []string
		wants []string
	}{
		"tcp":  {[]string{"iperf3"}, []string{"iperf3 --client 192.0.2.11 --bind 192.0.2.10 --port 5202 --parallel 4 --omit 1 --time 10 --json"}},
		"rdma": {[]string{"ib_write_bw", "ib_read_bw"}, []string{"ib_write_bw -p 5202 -s 1048576 -D 2 -q 4 -F --report_gbits --bind_source_ip 192.0.2.10 -d mlx5_0 -i 1 -x 3 192.0.2.11"}},
		"ucx":  {[]string{"ucx_perftest"}, []string{"ucx_perftest 192.0.2.11 -p 5202 -t ucp_put_bw -s 1048576 -n 2000 -w 50 -f"}},
	} {
		f, gid := testFleet(2), 3
		fab := &f.Deploy.Fabric
		fab.Transport, fab.Tool, fab.Device, fab.GIDIndex = transport, "iperf3", "mlx5_0:1", &gid
		if got := toolsOf(*fab); !slices.Equal(got, c.tool) {
			t.Errorf("%s is measured by %v", transport, got)
		}
		e := Edge{"h0", "h1"}
		if got := strings.Join(runsOf(f, c.tool[0], e, Budget{}, true)[0].Argv, " "); got != c.wants[0] {
			t.Errorf("%s: client\n %s, want\n %s", transport, got, c.wants[0])
		}
		all := planned(t, f)
		served, asked := 0, 0
		for _, s := range all {
			line := strings.Join(s.Argv, " ")
			if strings.HasPrefix(s.ID, "D/tester/") && strings.Contains(line, c.tool[0]) {
				served++
			}
			if s.Yields == toolKey(c.tool[0], e) && strings.Contains(line, `"`+strings.ReplaceAll(c.wants[0], " ", `","`)+`"`) {
				asked++
			}
		}
		if served != 2 || asked != 1 || len(all) != 1+2+1+2*len(c.tool)+2 {
			t.Errorf("%s: %d servers, %d clients in %d steps", transport, served, asked, len(all))
		}
	}
}

// TestSizesFollowFromTheBudget: from one block to the payload, with at least the fixed sizes
// between for TCP, and both directions at once once a pair for tools that can.
func TestSizesFollowFromTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		block, payload int64
		curve, tool    []int64
	}{
		"no budget":               {0, 0, curveSizes, []int64{1 << 20}},
		"within the fixed sizes":  {256 << 10, 16 << 20, []int64{64 << 10, 256 << 10, 512 << 10, 4 << 20, 16 << 20, 32 << 20}, []int64{256 << 10, 1 << 20, 8 << 20}},
		"a tiny block":            {1000, 4 << 20, []int64{1000, 64 << 10, 512 << 10, 4 << 20, 32 << 20}, []int64{1000, 1 << 20, 4 << 20}},
		"one block is the prompt": {1 << 20, 1 << 20, []int64{64 << 10, 512 << 10, 1 << 20, 4 << 20, 32 << 20}, []int64{1 << 20}},
		"beyond the bounds":       {16 << 20, 5 << 30, []int64{64 << 10, 512 << 10, 4 << 20, 16 << 20, 32 << 20, maxMessage}, []int64{1 << 20, 8 << 20}},
	} {
		b := Budget{BytesPerBlock: c.block, Payload: c.payload}
		if got := sizesOf(b); !slices.Equal(got, c.curve) || !curveFits(got) {
			t.Errorf("%s: curve of %v, want %v", name, got, c.curve)
		}
		if got := toolSizes(b); !slices.Equal(got, c.tool) {
			t.Errorf("%s: tools with %v, want %v", name, got, c.tool)
		}
	}
	f := testFleet(2)
	f.Deploy.Fabric.Transport = "rdma"
	v := view(t, f, map[record.Key]any{cacheKey(f): layout})
	b := budgetAhead(v)
	forward, back := runsOf(f, toolWrite, Edge{"h0", "h1"}, b, true), runsOf(f, toolWrite, Edge{"h1", "h0"}, b, false)
	if len(forward) != 4 || !forward[3].Both || !slices.Contains(forward[3].Argv, "-b") || len(back) != 3 {
		t.Errorf("runs %+v and back %+v", forward, back)
	}
	for i, r := range forward { // both ends of a run are called alike
		server := serversOf(f, "h1", b)[r.Server]
		if len(server) == 0 || slices.Contains(server, "-b") != r.Both || !strings.Contains(strings.Join(server, " "), fmt.Sprintf("-s %d -D 1 -q 4", r.Bytes)) {
			t.Errorf("run %d: server %q of client %q", i, server, r.Argv)
		}
	}
	if got := runsOf(f, toolUCX, Edge{"h0", "h1"}, b, true); len(got) != 3 || !strings.Contains(strings.Join(got[2].Argv, " "), "-s 8388608 -n 250") {
		t.Errorf("runs of UCX %+v", got)
	}
}

// TestAutoToolIsPlanned: every edge's step is in the plan, and may answer that iperf3 is absent.
func TestAutoToolIsPlanned(t *testing.T) {
	for tool, want := range map[string]bool{"iperf3": false, "auto": true} {
		f := testFleet(2)
		f.Deploy.Fabric.Tool = tool
		n := 0
		for _, s := range planned(t, f) {
			if s.Yields.Kind() == "tool" {
				n++
				if got := strings.Contains(strings.Join(s.Argv, " "), `"optional":true`); got != want {
					t.Errorf("%s: optional %t in %q", tool, got, s.Argv)
				}
			}
		}
		if n != 2 {
			t.Errorf("%s: %d steps", tool, n)
		}
	}
}

// TestHistory takes an earlier sample and its own history into the next request.
func TestHistory(t *testing.T) {
	f := testFleet(2)
	p := goodPair(Twosome{"h0", "h1"})
	for i := range maxHistory + 2 {
		p.History = append(p.History, Past{Fingerprint: "f", Forward: float64(i)})
	}
	e := map[record.Key]any{"D/pair/h0/h1": p}
	got := history(view(t, f, e), Twosome{"h0", "h1"})
	if len(got) != maxHistory || got[len(got)-1].Forward != p.Forward.Gbps || got[len(got)-1].Time != time.Unix(1000, 0).UTC() || got[0].Forward != 3 {
		t.Errorf("history %+v", got)
	}
	s := ToolSample{Gbps: 9, Fingerprint: "f", History: []Past{{Fingerprint: "f", Forward: 3}}}
	key := toolKey(toolWrite, Edge{"h0", "h1"})
	past := toolHistory(view(t, f, map[record.Key]any{key: s}), toolWrite, Edge{"h0", "h1"})
	if len(past) != 2 || past[0].Forward != 3 || past[1].Forward != 9 || past[1].Time != time.Unix(1000, 0).UTC() {
		t.Errorf("history of a tool %+v", past)
	}
	if past := toolHistory(view(t, f, map[record.Key]any{key: ToolSample{Gbps: 9}}), toolWrite, Edge{"h0", "h1"}); past != nil {
		t.Errorf("history of what compares with nothing: %v", past)
	}
	p.Unreachable = "refused"
	if got := history(view(t, f, map[record.Key]any{"D/pair/h0/h1": p}), Twosome{"h0", "h1"}); got != nil {
		t.Errorf("history of what was not reached: %v", got)
	}
}

// TestPlanAtOnce: pairs of one place wait for each other, and no other measurement has more than its hosts.
func TestPlanAtOnce(t *testing.T) {
	f := testFleet(6)
	f.Deploy.Fabric.AtOnce = 2
	places := map[string]int{}
	for _, s := range planned(t, f) {
		for _, x := range s.Exclusive {
			if !strings.HasPrefix(x, "fabric:") {
				places[x]++
				if !strings.HasPrefix(s.ID, "D/pair/") {
					t.Errorf("%s has %s", s.ID, x)
				}
			}
		}
	}
	if len(places) != 2 || places["fabric-place:0"] != 8 || places["fabric-place:1"] != 7 {
		t.Errorf("places %v", places)
	}
}

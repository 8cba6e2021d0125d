package fabric

import (
	"encoding/json"
	"maps"
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

// testFleet is n hosts with engines, h1 …, of which the first has two, and a router's host.
func testFleet(n int) fleet.Fleet {
	f := fleet.Fleet{Deploy: &fleet.Deploy{
		Name: "tern", Hosts: map[string]fleet.Host{"router": {Root: "/opt/n"}}, Engines: map[string]fleet.Place{}, Router: fleet.Router{Host: "router"},
		Fabric: fleet.Fabric{Interface: "eth1", PromptTokens: 8192, HandoffsPerS: 1, Headroom: 1.25, MinGbps: 4, Sample: fleet.Duration(10 * time.Second), Streams: 4, Port: 5201,
			Tool: "narwhal", Outlier: 0.2, Incast: true},
	}}
	for i, h := range names(n) {
		f.Deploy.Hosts[h] = fleet.Host{Root: "/opt/n", FabricAddress: address(h)}
		f.Engines = append(f.Engines, fleet.Engine{IID: "e" + h, URL: "http://" + address(h) + ":8100"})
		f.Deploy.Engines["e"+h] = fleet.Place{Host: h}
		if i == 0 {
			f.Engines = append(f.Engines, fleet.Engine{IID: "f" + h, URL: "http://" + address(h) + ":8101"})
			f.Deploy.Engines["f"+h] = fleet.Place{Host: h}
		}
	}
	return f
}

func address(h string) string { return "192.0.2.1" + strings.TrimPrefix(h, "h") }

// layout makes a payload of 128 MiB, 1.34 Gbit/s at one handoff a second.
var layout = engine.CacheLayout{BlockSize: 16, BytesPerBlock: 1 << 18, Blocks: 9}

// view is what the judge sees of recorded evidence.
func view(t testing.TB, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Unix(1000, 0), evidence)
}

func steady(v float64) []float64 {
	return []float64{v * 0.99, v, v * 1.01, v, v * 1.005}
}

func direction(v float64) Direction {
	d := Direction{Together: steady(v), Alone: []float64{v, v * 1.01, v}, Bytes: 1 << 30, Segments: 1e6, PathMTU: 9000, Datagrams: 2000, Arrived: 2000,
		Curve: []Point{{64 << 10, 0.0002}, {32 << 20, 0.03}}}
	d.Gbps, d.Spread = centre(d.Together)
	d.AloneGbps = median(d.Alone)
	return d
}

func goodPair(p Twosome) Pair {
	return Pair{A: p.A, B: p.B, Tool: toolName, Fingerprint: "f", Forward: direction(9), Back: direction(9.1),
		EndA: End{Route: "eth1 " + address(p.A), MTU: 9000, SpeedMbps: 10000, Seen: address(p.B)}, EndB: End{Route: "eth1 " + address(p.B), MTU: 9000, SpeedMbps: 10000, Seen: address(p.A)}}
}

// good is the evidence of a fabric that carries its budget.
func good(t testing.TB, f fleet.Fleet) map[record.Key]any {
	t.Helper()
	b, err := BudgetOf(f.Deploy.Fabric, layout)
	if err != nil {
		t.Fatal(err)
	}
	out := map[record.Key]any{budgetKey: b, cacheKey(f): layout}
	hosts := f.EngineHosts()
	for _, p := range pairs(hosts) {
		out[pairKey(p)] = goodPair(p)
	}
	for _, name := range toolsOf(f.Deploy.Fabric) {
		for _, e := range edges(hosts) {
			out[toolKey(name, e)] = toolSample(name, 9)
		}
	}
	for _, h := range incastHosts(f) {
		i := Incast{Host: h, Repeat: []float64{9, 9.1, 9}, Gbps: 9, Spread: 0.1, Seconds: 0.8, Shares: map[string]float64{}, Interface: "eth1"}
		for _, o := range hosts {
			if o != h {
				i.Shares[o] = 9 / float64(len(hosts)-1)
			}
		}
		out[incastKey(h)] = i
	}
	return out
}

// change edits one direction and the pair that it is of.
func change(e map[record.Key]any, from, to string, edit func(*Pair, *Direction)) {
	hosts := []string{"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"}
	k := pairKey(pairOf(hosts, Edge{from, to}))
	p := e[k].(Pair)
	d := &p.Forward
	if from == p.B {
		d = &p.Back
	}
	edit(&p, d)
	e[k] = p
}

// slow gives a direction another rate.
func slow(v float64) func(*Pair, *Direction) {
	return func(_ *Pair, d *Direction) {
		now := direction(v)
		d.Together, d.Alone, d.Gbps, d.Spread, d.AloneGbps = now.Together, now.Alone, now.Gbps, now.Spread, now.AloneGbps
	}
}

// allOf applies an edit to everything that a host sends and takes in.
func allOf(e map[record.Key]any, n int, host string, edit func(*Pair, *Direction)) {
	for _, o := range names(n) {
		if o != host {
			change(e, host, o, edit)
			change(e, o, host, edit)
		}
	}
}

func incast(e map[record.Key]any, h string, edit func(*Incast)) {
	i := e[incastKey(h)].(Incast)
	i.Shares = maps.Clone(i.Shares)
	edit(&i)
	e[incastKey(h)] = i
}

func toolSlow(e map[record.Key]any, name, from, to string, v float64) {
	e[toolKey(name, Edge{from, to})] = ToolSample{Tool: name, Gbps: v}
}

// toolSample is an edge as a tool measures it, with sizes and both directions where it has them.
func toolSample(name string, v float64) ToolSample {
	s := ToolSample{Tool: name, Gbps: v, Fingerprint: "f"}
	for _, k := range kinds(name, Budget{BytesPerBlock: layout.BytesPerBlock, Payload: 1 << 27}) {
		if k.bytes > 0 {
			r := []float64{v, v * 1.01, v * 0.99}
			if k.both {
				r = []float64{1.9 * v, 1.9 * v, 1.9 * v}
			}
			s.keep(ToolRates{Bytes: k.bytes, Both: k.both, Repeat: r})
		}
	}
	return s
}

// toolRun edits one run of a tool's sample.
func toolRun(e map[record.Key]any, name, from, to string, bytes int64, both bool, v float64) {
	s := e[toolKey(name, Edge{from, to})].(ToolSample)
	s.Runs = slices.Clone(s.Runs)
	for i, r := range s.Runs {
		if r.Bytes == bytes && r.Both == both {
			s.Runs[i].Repeat, s.Runs[i].Gbps = []float64{v, v, v}, v
		}
	}
	e[toolKey(name, Edge{from, to})] = s
}

func toolPast(e map[record.Key]any, name, from, to string, past ...Past) {
	s := e[toolKey(name, Edge{from, to})].(ToolSample)
	s.History = past
	e[toolKey(name, Edge{from, to})] = s
}

func rdma(f *fleet.Fabric) { f.Transport = "rdma" }

// TestJudge: each code has a fault that shows it, and its host.
func TestJudge(t *testing.T) {
	const n = 4
	for name, c := range map[string]struct {
		fleet  func(*fleet.Fabric)
		change func(map[record.Key]any)
		want   []string
	}{
		"good":             {change: func(map[record.Key]any) {}},
		"a slow edge":      {change: func(e map[record.Key]any) { change(e, "h1", "h3", slow(3.1)) }, want: []string{"edge-outlier@h1", "edge-slow@h1"}},
		"just enough":      {fleet: func(f *fleet.Fabric) { f.MinGbps = 9 }, change: func(map[record.Key]any) {}},
		"a slow way back":  {change: func(e map[record.Key]any) { change(e, "h3", "h1", slow(3.1)) }, want: []string{"edge-outlier@h3", "edge-slow@h3"}},
		"less than peers":  {change: func(e map[record.Key]any) { change(e, "h1", "h3", slow(6.3)) }, want: []string{"edge-outlier@h1"}},
		"less, but little": {change: func(e map[record.Key]any) { change(e, "h1", "h3", slow(7.6)) }},
		"less, and allowed": {fleet: func(f *fleet.Fabric) { f.Outlier = 0 },
			change: func(e map[record.Key]any) { change(e, "h1", "h3", slow(6.3)) }},
		"a slow host": {change: func(e map[record.Key]any) { allOf(e, n, "h2", slow(6.3)) }, want: []string{"edge-outlier@h2", "edge-outlier@h2"}},
		"half duplex": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Gbps, d.Together = 3, steady(3) })
		}, want: []string{"edge-duplex@h1", "edge-outlier@h1"}},
		"no rate": {change: func(e map[record.Key]any) {
			change(e, "h2", "h1", func(_ *Pair, d *Direction) { *d = Direction{PathMTU: 9000} })
		}, want: []string{"edge-outlier@h2", "edge-slow@h2"}},
		"less than before": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(p *Pair, _ *Direction) {
				p.History = []Past{{Fingerprint: "f", Forward: 14, Back: 9}, {Fingerprint: "f", Forward: 13, Back: 9}}
			})
		}, want: []string{"edge-degraded@h1"}},
		"less than by another route": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(p *Pair, _ *Direction) { p.History = []Past{{Fingerprint: "g", Forward: 14, Back: 9}} })
		}},
		"a late start": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Curve = []Point{{64 << 10, 1.5}, {32 << 20, 1.53}} })
		}, want: []string{"payload-slow@h1"}},
		"a link that loses": {change: func(e map[record.Key]any) { change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Arrived = 1980 }) }, want: []string{"edge-lossy@h1"}},
		"one lost":          {change: func(e map[record.Key]any) { change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Arrived = 1999 }) }},
		"lost at the end": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Arrived, d.Overrun = 1900, 100 })
		}},
		"a host that loses": {change: func(e map[record.Key]any) {
			allOf(e, n, "h2", func(_ *Pair, d *Direction) { d.Arrived = 1980 })
		}, want: []string{"edge-lossy@h2", "edge-lossy@h2"}},
		"sent again": {change: func(e map[record.Key]any) { change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.Retransmits = 3e4 }) }, want: []string{"edge-retransmits@h1"}},
		"all send again": {change: func(e map[record.Key]any) {
			for _, h := range names(n) {
				allOf(e, n, h, func(_ *Pair, d *Direction) { d.Retransmits = 3e4 })
			}
		}},
		"a small interface": {change: func(e map[record.Key]any) {
			allOf(e, n, "h2", func(p *Pair, d *Direction) {
				d.PathMTU = 1500
				if p.A == "h2" {
					p.EndA.MTU = 1500
				} else {
					p.EndB.MTU = 1500
				}
			})
		}, want: []string{"mtu-differs@h2"}},
		"a black hole": {change: func(e map[record.Key]any) { change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.PathMTU = 1500 }) }, want: []string{"path-mtu@h1"}},
		"a host's black hole": {change: func(e map[record.Key]any) {
			allOf(e, n, "h2", func(_ *Pair, d *Direction) { d.PathMTU = 1500 })
		}, want: []string{"path-mtu@h2", "path-mtu@h2"}},
		"no datagrams": {change: func(e map[record.Key]any) { change(e, "h1", "h3", func(_ *Pair, d *Direction) { d.PathMTU = 0 }) }, want: []string{"probe-blocked@h1"}},
		"a damaged link": {change: func(e map[record.Key]any) {
			change(e, "h1", "h3", func(p *Pair, _ *Direction) { p.CountersB = map[string]int64{"rx_crc_errors": 7, "tx_dropped": 9} })
		}, want: []string{"link-errors@h3"}},
		"another way": {change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { p.EndA.Route = "eth0 " + address("h1") })
		}, want: []string{"edge-interface@h1"}},
		"another way back": {change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { p.EndB.Route = "unknown" })
		}, want: []string{"edge-interface@h2"}},
		"any way": {fleet: func(f *fleet.Fabric) { f.Interface = "" }, change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { p.EndA.Route = "eth0 " + address("h1") })
		}},
		"out by another address": {change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { p.EndA.Route = "eth1 198.51.100.7" })
		}, want: []string{"edge-asymmetric@h1"}},
		"translated": {change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { p.EndB.Seen = "198.51.100.7" })
		}, want: []string{"edge-asymmetric@h1"}},
		"out by a gateway": {change: func(e map[record.Key]any) {
			change(e, "h2", "h1", func(p *Pair, _ *Direction) { p.EndB.Gateway = "192.0.2.254" })
		}, want: []string{"edge-asymmetric@h2"}},
		"both by gateways": {change: func(e map[record.Key]any) {
			change(e, "h2", "h1", func(p *Pair, _ *Direction) { p.EndB.Gateway, p.EndA.Gateway = "192.0.2.254", "192.0.2.253" })
		}},
		"unreachable": {change: func(e map[record.Key]any) {
			change(e, "h1", "h2", func(p *Pair, _ *Direction) { *p = Pair{Unreachable: "no route to host"} })
		}, want: []string{"edge-unreachable@h1"}},
		"a softened budget": {change: func(e map[record.Key]any) {
			b := e[budgetKey].(Budget)
			b.Floor, b.Required = 1, 1
			e[budgetKey] = b
		}, want: []string{"budget-differs@"}},
		"another cache layout": {change: func(e map[record.Key]any) {
			e["C/cache/eh0"] = engine.CacheLayout{BlockSize: 16, BytesPerBlock: 1 << 30}
		}, want: []string{"budget-differs@"}},
		"a cache of unknown size": {change: func(e map[record.Key]any) { e["C/cache/eh0"] = engine.CacheLayout{BlockSize: 16} }, want: []string{"budget-differs@"}},
		"incast below the floor":  {change: func(e map[record.Key]any) { incast(e, "h2", func(i *Incast) { i.Gbps = 3 }) }, want: []string{"incast-slow@h2"}},
		"incast of a sender that is gone": {change: func(e map[record.Key]any) {
			incast(e, "h2", func(i *Incast) { i.Missing = map[string]string{"h1": "refused"} })
		}, want: []string{"incast-missing@h2"}},
		"incast that shuts one out": {change: func(e map[record.Key]any) { incast(e, "h2", func(i *Incast) { i.Shares["h1"] = 0.001 }) }, want: []string{"incast-unfair@h1"}},
		"incast too short to be fair": {change: func(e map[record.Key]any) {
			incast(e, "h2", func(i *Incast) { i.Shares["h1"], i.Seconds = 0, 0.07 })
		}},
		"iperf3 says less":     {fleet: func(f *fleet.Fabric) { f.Tool = "iperf3" }, change: func(e map[record.Key]any) { toolSlow(e, "iperf3", "h1", "h2", 3) }, want: []string{"tool-outlier@h1", "tool-slow@h1"}},
		"ib_read_bw says less": {fleet: func(f *fleet.Fabric) { f.Transport = "rdma" }, change: func(e map[record.Key]any) { toolSlow(e, "ib_read_bw", "h1", "h2", 6) }, want: []string{"tool-outlier@h1"}},
		"iperf3 on a loopback measures the machine": {fleet: func(f *fleet.Fabric) { f.Interface, f.Tool = "", "iperf3" }, change: func(e map[record.Key]any) {
			loopbacks(e)
			toolSlow(e, "iperf3", "h1", "h2", 6)
		}},
		"iperf3 on a loopback below the floor": {fleet: func(f *fleet.Fabric) { f.Interface, f.Tool = "", "iperf3" }, change: func(e map[record.Key]any) {
			loopbacks(e)
			toolSlow(e, "iperf3", "h1", "h2", 3)
		}, want: []string{"tool-slow@h1"}},
		"RDMA is well": {fleet: rdma, change: func(map[record.Key]any) {}},
		"UCX is well":  {fleet: func(f *fleet.Fabric) { f.Transport = "ucx" }, change: func(map[record.Key]any) {}},
		"an RDMA sample without repeats": {fleet: rdma, change: func(e map[record.Key]any) {
			e[toolKey(toolWrite, Edge{"h1", "h2"})] = ToolSample{Tool: toolWrite, Gbps: 9}
		}},
		"RDMA is slow with blocks": {fleet: rdma, change: func(e map[record.Key]any) {
			toolRun(e, toolWrite, "h1", "h2", layout.BytesPerBlock, false, 1.3)
		}, want: []string{"tool-size-slow@h1"}},
		"RDMA is less, and enough, with blocks": {fleet: rdma, change: func(e map[record.Key]any) {
			toolRun(e, toolWrite, "h1", "h2", layout.BytesPerBlock, false, 1.4)
		}},
		"UCX is slow with payloads": {fleet: func(f *fleet.Fabric) { f.Transport = "ucx" }, change: func(e map[record.Key]any) {
			toolRun(e, toolUCX, "h1", "h2", mostBytes, false, 1.3)
		}, want: []string{"tool-size-slow@h1"}},
		"RDMA shares both ways": {fleet: rdma, change: func(e map[record.Key]any) { toolRun(e, toolRead, "h1", "h2", mainBytes, true, 7.9) }, want: []string{"tool-duplex@h1"}},
		"RDMA carries less than before": {fleet: rdma, change: func(e map[record.Key]any) {
			toolPast(e, toolWrite, "h1", "h2", Past{Fingerprint: "f", Forward: 14}, Past{Fingerprint: "f", Forward: 13})
		}, want: []string{"tool-degraded@h1"}},
		"RDMA carries less than by other commands": {fleet: rdma, change: func(e map[record.Key]any) {
			toolPast(e, toolWrite, "h1", "h2", Past{Fingerprint: "g", Forward: 14})
		}},
		"RDMA carries less than before, and it is allowed": {fleet: func(f *fleet.Fabric) { rdma(f); f.Outlier = 0 }, change: func(e map[record.Key]any) {
			toolPast(e, toolWrite, "h1", "h2", Past{Fingerprint: "f", Forward: 14})
		}},
		"iperf3 measures one run, so nothing of its spread": {fleet: func(f *fleet.Fabric) { f.Tool = "iperf3" }, change: func(e map[record.Key]any) {
			toolPast(e, "iperf3", "h1", "h2", Past{Fingerprint: "f", Forward: 14})
		}},
		"a tool that must be there is absent": {fleet: func(f *fleet.Fabric) { f.Tool = "iperf3" }, change: func(e map[record.Key]any) {
			e[toolKey("iperf3", Edge{"h1", "h2"})] = ToolSample{Tool: "iperf3", Absent: "h2"}
		}, want: []string{"tool-outlier@h1", "tool-slow@h1"}},
		"TCP is slow, RDMA is not": {fleet: func(f *fleet.Fabric) { f.Transport = "rdma" }, change: func(e map[record.Key]any) { change(e, "h1", "h3", slow(1)) }},
		"a loopback":               {fleet: func(f *fleet.Fabric) { f.Interface = "" }, change: loopbacks},
	} {
		f := testFleet(n)
		if c.fleet != nil {
			c.fleet(&f.Deploy.Fabric)
		}
		e := good(t, f)
		c.change(e)
		v := view(t, f, e)
		got := Gate{}.Judge(v)
		var codes []string
		for _, x := range got {
			codes = append(codes, x.Code+"@"+x.Host)
			if x.Message == "" || x.Hint == "" || x.Want == "" || x.Got == "" || x.Evidence == "" || e[record.Key(x.Evidence)] == nil {
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

// TestAbsentToolIsNoted: with "auto" iperf3 may be missing, which is told and does not fail; what
// it measures elsewhere counts.
func TestAbsentToolIsNoted(t *testing.T) {
	f := testFleet(4)
	f.Deploy.Fabric.Tool = "auto"
	e := good(t, f)
	for _, edge := range edges(names(4)) {
		if edge.From == "h2" || edge.To == "h2" {
			e[toolKey(toolIperf, edge)] = ToolSample{Tool: toolIperf, Absent: "h2"}
		}
	}
	v := view(t, f, e)
	got := Gate{}.Judge(v)
	if state, _ := gates.Verdict(Gate{}, v, nil); len(got) != 1 || got[0].Code != "tool-absent" || got[0].Host != "h2" || !got[0].Note || state != record.VerdictPassed {
		t.Errorf("found %+v, verdict %s", got, state)
	}
	toolSlow(e, toolIperf, "h0", "h1", 3)
	if got := (Gate{}).Judge(view(t, f, e)); !slices.ContainsFunc(got, func(x record.Finding) bool { return x.Code == "tool-slow" && x.Host == "h0" }) {
		t.Errorf("a slow edge where it is: found %+v", got)
	}
}

// loopbacks moves every host to one machine, where rates differ as they like.
func loopbacks(e map[record.Key]any) {
	for i, a := range names(4) {
		for _, b := range names(4)[i+1:] {
			change(e, a, b, func(p *Pair, _ *Direction) {
				p.EndA.Route, p.EndB.Route = "lo "+address(a), "lo "+address(b)
				slow(5+float64(i))(p, &p.Forward)
				p.Forward.Retransmits, p.Forward.Arrived = 1e5, 1900
			})
		}
	}
	change(e, "h0", "h1", slow(4.5))
	incast(e, "h2", func(i *Incast) { i.Interface, i.Shares["h1"] = "lo", 0 })
}

// TestMissingBudgetIsTheRunners: the judge says nothing of what was not recorded.
func TestMissingBudgetIsTheRunners(t *testing.T) {
	f := testFleet(3)
	e := good(t, f)
	delete(e, budgetKey)
	v := view(t, f, e)
	if got := (Gate{}).Judge(v); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	if state, _ := gates.Verdict(Gate{}, v, nil); state != record.VerdictInconclusive {
		t.Errorf("verdict %s", state)
	}
}

func TestIncastOutlierNeedsPeers(t *testing.T) {
	f := testFleet(8)
	e := good(t, f)
	incast(e, "h2", func(i *Incast) { i.Gbps, i.Repeat = 5, []float64{5, 5.1, 5} })
	got := Gate{}.Judge(view(t, f, e))
	if len(got) != 1 || got[0].Code != "incast-outlier" || got[0].Host != "h2" {
		t.Errorf("found %+v", got)
	}
}

// TestShortIncastIsComparedLess: senders that rest after a drop leave a short repeat low.
func TestShortIncastIsComparedLess(t *testing.T) {
	for seconds, want := range map[float64]int{0.2: 0, 0.8: 1} {
		f := testFleet(8)
		e := good(t, f)
		for _, h := range names(8) {
			incast(e, h, func(i *Incast) {
				i.Seconds = seconds
				if h == "h2" {
					i.Gbps, i.Repeat = 6.8, []float64{6.7, 6.9, 6.8}
				}
			})
		}
		if got := (Gate{}).Judge(view(t, f, e)); len(got) != want {
			t.Errorf("repeats of %g s: found %v", seconds, messages(got))
		}
	}
}

func TestFindingNamesBothRates(t *testing.T) {
	f := testFleet(2)
	e := good(t, f)
	change(e, "h0", "h1", slow(3.1))
	got := Gate{}.Judge(view(t, f, e))
	if len(got) != 1 || got[0].Message != "edge h0 → h1: 3.1 Gbit/s measured, 4 Gbit/s required" {
		t.Errorf("found %+v", got)
	}
}

func TestFactsAreTheRoutesOfBothEnds(t *testing.T) {
	p := Pair{EndA: End{Route: "eth1 a", Gateway: "g", MTU: 9000, SpeedMbps: 100000}, EndB: End{Route: "eth1 b"}}
	facts := func(p Pair) map[string]string {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return Gate{}.Facts("D/pair/h1/h2", b)
	}
	const ofA = "eth1 a via g mtu 9000 speed 100000"
	if got := facts(p); got["host/h1/route/h2"] != ofA || got["host/h2/route/h1"] != "eth1 b" || len(got) != 2 {
		t.Errorf("facts %v", got)
	}
	p.Unreachable = "refused"
	if got := facts(p); got["host/h1/route/h2"] != ofA || len(got) != 1 {
		t.Errorf("facts of what was not reached: %v", got)
	}
	if (Gate{}).Facts(budgetKey, []byte("{}")) != nil || (Gate{}).Facts("D/pair/h1/h2", []byte("x")) != nil || (Gate{}).Facts("D/pair/h1", []byte("{}")) != nil {
		t.Error("facts of something else")
	}
}

// FuzzJudge reads any bytes as a pair's evidence.
func FuzzJudge(f *testing.F) {
	b, err := json.Marshal(goodPair(Twosome{"h0", "h1"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"forward":{"gbps":-1,"together_gbps":[1e308,-1e308],"curve":[{"bytes":-1,"seconds":-1},{"bytes":5,"seconds":0}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		fl := testFleet(3)
		e := good(t, fl)
		e["D/pair/h0/h1"] = b
		for _, x := range (Gate{}).Judge(view(t, fl, e)) {
			if x.Code == "" || x.Message == "" {
				t.Errorf("finding %+v", x)
			}
		}
		_ = (Gate{}).Facts("D/pair/h0/h1", b)
	})
}

package fabric

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// impairRuns is how often each fault of a proxy is looked for; once unless it is set.
const impairRuns = "NARWHAL_FABRIC_IMPAIR_RUNS"

const (
	proxyHosts = 4
	proxyMbit  = 200
	proxyMTU   = 9000
)

// fabricOf are testers behind proxies: one for each pair, so that every link is a way of its own.
type fabricOf struct {
	t       *testing.T
	fleet   fleet.Fleet
	testers map[string]string
}

func newFabricOf(t *testing.T) *fabricOf {
	f := testFleet(proxyHosts)
	fab := &f.Deploy.Fabric
	fab.PromptTokens, fab.HandoffsPerS, fab.MinGbps, fab.Streams, fab.Incast, fab.Sample = 16, 1, 0.02, 2, false, fleet.Duration(600*time.Millisecond)
	w := &fabricOf{t: t, fleet: f, testers: map[string]string{}}
	for _, h := range names(proxyHosts) {
		w.testers[h] = serving(t, nil)
	}
	return w
}

// measured is the evidence of all pairs. The ends are written as those of machines of their own,
// since a loopback is held to little; every figure is measured.
func (w *fabricOf) measured(of func(Edge) way) map[record.Key]any {
	w.t.Helper()
	b, err := BudgetOf(w.fleet.Deploy.Fabric, layout)
	if err != nil {
		w.t.Fatal(err)
	}
	e := map[record.Key]any{budgetKey: b, cacheKey(w.fleet): layout}
	var mu sync.Mutex
	for _, round := range Rounds(names(proxyHosts)) {
		var wg sync.WaitGroup
		for _, p := range round {
			wg.Go(func() {
				edges := p.Edges()
				link := impairing(w.t, w.testers[p.B], of(edges[0]), of(edges[1]))
				got, err := MeasurePair(limited(w.t), PairRequest{A: p.A, B: p.B, Address: link.address(), Streams: w.fleet.Deploy.Fabric.Streams, For: w.fleet.Deploy.Fabric.Sample})
				if err != nil || got.Unreachable != "" {
					w.t.Errorf("%v: %v %s", p, err, got.Unreachable)
					return
				}
				as := goodPair(p)
				got.EndA, got.EndB = as.EndA, as.EndB
				for _, d := range []*Direction{&got.Forward, &got.Back} {
					d.PathMTU = min(d.PathMTU, proxyMTU)
				}
				mu.Lock()
				defer mu.Unlock()
				e[pairKey(p)] = got
			})
		}
		wg.Wait()
	}
	return e
}

func healthy(Edge) way { return way{mbit: proxyMbit} }

// proxyFaults are faults of one edge, a pair or a host behind a proxy, and what must be found.
var proxyFaults = map[string]struct {
	of    func(Edge) way
	fleet func(*fleet.Fabric)
	want  []string // "code what"
}{
	"an edge 30 % slower": {of: func(e Edge) way {
		if e == (Edge{"h1", "h2"}) {
			return way{mbit: 0.7 * proxyMbit}
		}
		return healthy(e)
	}, want: []string{"edge-outlier edge h1 → h2"}},
	"a host 30 % slower in what it takes in": {of: func(e Edge) way {
		if e.To == "h2" {
			return way{mbit: 0.7 * proxyMbit}
		}
		return healthy(e)
	}, want: []string{"edge-outlier host h2, all that it takes in"}},
	"an edge that loses 0.5 %": {of: func(e Edge) way {
		if e == (Edge{"h3", "h0"}) {
			return way{mbit: proxyMbit, loss: 0.005}
		}
		return healthy(e)
	}, fleet: func(f *fleet.Fabric) { f.Sample = fleet.Duration(time.Second) }, want: []string{"edge-lossy edge h3 → h0"}},
	"a host that loses 2 % of what it sends": {of: func(e Edge) way {
		if e.From == "h3" {
			return way{mbit: proxyMbit, loss: 0.02}
		}
		return healthy(e)
	}, want: []string{"edge-lossy host h3, all that it sends"}},
	"a pair that takes 1500 bytes": {of: func(e Edge) way {
		if pairOf(names(proxyHosts), e) == (Twosome{"h1", "h3"}) {
			return way{mbit: proxyMbit, largest: 1500}
		}
		return healthy(e)
	}, want: []string{"path-mtu edge h1 → h3", "path-mtu edge h3 → h1"}},
	"one way that takes 1500 bytes": {of: func(e Edge) way {
		if e == (Edge{"h2", "h0"}) {
			return way{mbit: proxyMbit, largest: 1500}
		}
		return healthy(e)
	}, want: []string{"path-mtu edge h2 → h0"}},
	"a pair with 30 ms of delay and 5 ms of jitter": {of: func(e Edge) way {
		if pairOf(names(proxyHosts), e) == (Twosome{"h0", "h2"}) {
			return way{mbit: proxyMbit, delay: 30 * time.Millisecond, jitter: 5 * time.Millisecond}
		}
		return healthy(e)
	}, fleet: func(f *fleet.Fabric) { f.HandoffsPerS, f.Headroom = 40, 1 }, want: []string{"payload-slow edge h0 → h2", "payload-slow edge h2 → h0"}},
}

// TestImpairedIsNamed measures four hosts behind proxies that impair one of their links, and
// healthy ones: every fault is found, where it is, and nothing else.
func TestImpairedIsNamed(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes seconds, and measures rates")
	}
	times := 1
	if n, err := strconv.Atoi(os.Getenv(impairRuns)); err == nil && n > 0 {
		times = n
	}
	run := func(name string, of func(Edge) way, change func(*fleet.Fabric), want []string) {
		missed, more := 0, 0
		for i := range times {
			w := newFabricOf(t)
			if change != nil {
				change(&w.fleet.Deploy.Fabric)
			}
			e := w.measured(of)
			got := Gate{}.Judge(view(t, w.fleet, e))
			for _, x := range want {
				code, what, _ := strings.Cut(x, " ")
				if !named(got, code, what) {
					missed++
					t.Errorf("%s, run %d, load %s: %s is not found in %v", name, i, load(), x, messages(got))
				}
			}
			for _, f := range got {
				if !slices.ContainsFunc(want, func(x string) bool {
					code, what, _ := strings.Cut(x, " ")
					return f.Code == code && strings.HasPrefix(f.Message, what)
				}) {
					more++
					say := t.Errorf
					if slices.Contains(rateCodes, f.Code) { // what else runs beside it, in these short samples
						say = t.Logf
					}
					say("%s, run %d, load %s: also found %s %s", name, i, load(), f.Code, f.Message)
				}
			}
		}
		t.Logf("%s: %d runs, load %s: %d missed, %d others found", name, times, load(), missed, more)
	}
	run("nothing", healthy, nil, nil)
	for _, name := range slices.Sorted(maps.Keys(proxyFaults)) {
		f := proxyFaults[name]
		run(name, f.of, f.fleet, f.want)
	}
}

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/bundle"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Schema: fleet.Schema, SchemaVersion: fleet.Version, Model: "tiny", SLO: fleet.SLO{TTFTS: 1, TPOTS: 0.1},
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://192.0.2.11:8101"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}}, Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h1"}},
			Router: fleet.Router{Host: "h1", Listen: "127.0.0.1:8000"},
			Trial:  fleet.Trial{Rates: []float64{5, 10}, Requests: 4, InputTokens: 16, OutputTokens: 4, Attainment: 0.75, Trace: "azure"},
		},
	}
}

// view is what the judge sees of recorded evidence; bytes stand as they are.
func view(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) gates.View {
	t.Helper()
	return gatestest.View(t, f, gates.Release{}, time.Time{}, evidence)
}

func ptr[T any](v T) *T { return &v }

// rows are n requests within the SLO, with the journal's account of them.
func rows(tag string, n int) (client []bench.Row, router []journal.Row) {
	for i := range n {
		rid, crid := fmt.Sprint("r-", tag, i), fmt.Sprint(tag, "-", i)
		client = append(client, bench.Row{Index: i, RID: rid, ClientRID: crid, Sent: true, Status: 200, PromptTokens: 16, OutputTokens: 4, TTFT: ptr(0.2), TPOT: ptr(0.01), Finish: "length", Completed: true})
		router = append(router, journal.Row{Head: journal.Head{Run: "run-1"}, RID: rid, ClientRID: &crid, OutputLen: ptr(4), Status: ptr(200), Terminal: journal.Completed})
	}
	return client, router
}

// archive is a bundle of a run without hosts to ask.
func archive(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	f := testFleet()
	_, err := bundle.Collect(context.Background(), bundle.Source{Fleet: f, RunDir: t.TempDir(), Tool: "test",
		Host: func(context.Context, string) (bundle.Host, error) { return nil, errors.New("no host here") },
		HTTP: func(context.Context, string, string) ([]byte, error) { return nil, errors.New("no host here") }}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// evidence of a trial of two rates; what follows from it is put beside it later.
type evidence struct {
	router  gates.Launched
	drain   gates.Drained
	ready   Ready
	trial   Trial
	journal Journal
	ring    Ring
	note    Acceptance
	bundle  []byte
}

func good(f fleet.Fleet, bundled []byte) *evidence {
	e := &evidence{ready: Ready{Ready: true}, bundle: bundled}
	e.trial.Before, e.trial.After = map[string]string{}, map[string]string{}
	for _, q := range rests(f) {
		for _, n := range q.names() {
			e.trial.Before[n], e.trial.After[n] = "v", "v"
		}
	}
	for i, rate := range []float64{5, 10} {
		tag := fmt.Sprint("tag-", i)
		client, router := rows(tag, 4)
		e.trial.Points = append(e.trial.Points, Point{Rate: rate, Tag: tag, Rows: client, IdleBefore: true, IdleAfter: true, SampleEveryS: 2})
		e.journal.Rows = append(e.journal.Rows, router...)
		e.journal.Windows = append(e.journal.Windows, Window{})
	}
	for _, p := range ringPairs(f) {
		e.ring.Pairs = append(e.ring.Pairs, RingPair{From: p[0].IID, To: p[1].IID, Prompt: 64, Split: []int{1, 2}, Unsplit: []int{1, 2}, Moved: 63})
	}
	return e
}

// counted lets the router have counted what the journal tells.
func (e *evidence) counted() {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sums := map[string]float64{}
	look := func() bench.Sample {
		at = at.Add(time.Second)
		s := bench.Sample{At: at, Run: "run-1", Counters: map[string]float64{"narwhal_flips_total": 3}}
		for terminal, name := range map[string]string{"": "offered", journal.Completed: "served", journal.Failed: "failed", journal.Refused: "refused"} {
			s.Counters["narwhal_"+name+"_total"] = sums[terminal]
		}
		return s
	}
	for i := range e.trial.Points {
		p := &e.trial.Points[i]
		p.Samples = []bench.Sample{look()}
		for _, r := range e.journal.Rows {
			if strings.HasPrefix(*r.ClientRID, p.Tag+"-") {
				sums[r.Terminal]++
				sums[""]++
			}
		}
		if i < len(e.journal.Windows) {
			for _, o := range e.journal.Windows[i].Others {
				sums[o.Terminal]++
				sums[""]++
			}
		}
		p.Samples = append(p.Samples, look())
	}
}

// noted writes the acceptance note of the evidence.
func (e *evidence) noted(t *testing.T, f fleet.Fleet) {
	t.Helper()
	a, err := note(view(t, f, e.all()))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		a.Routes[r] = 200
	}
	a.Serves, a.Roles = true, map[string][]string{"prefill": {"p0"}, "decode": {"d0"}}
	e.note = a
}

func (e *evidence) all() map[record.Key]any {
	return map[record.Key]any{routerDrainKey: e.drain, routerKey: e.router, readyKey: e.ready, trialKey: e.trial, journalKey: e.journal, ringKey: e.ring, acceptanceKey: e.note, bundleKey: e.bundle}
}

// stopAfterFirst leaves the second rate out and says so.
func (e *evidence) stopAfterFirst() {
	e.trial.Points, e.trial.NotRun = e.trial.Points[:1], []float64{10}
	e.journal.Rows, e.journal.Windows = e.journal.Rows[:4], e.journal.Windows[:1]
}

func TestJudge(t *testing.T) {
	bundled := archive(t)
	for name, c := range map[string]struct {
		fleet  func(*fleet.Fleet)
		change func(*evidence) // before what follows from it
		damage func(*evidence) // afterwards
		want   []string
	}{
		"good":                                  {},
		"not ready":                             {change: func(e *evidence) { e.ready = Ready{Reason: "no decode\x1b[2J engine"} }, want: []string{"router-not-ready"}},
		"requests that the drain cut are noted": {change: func(e *evidence) { e.drain.Was, e.drain.Cut = true, ptr(2) }},
		"a router that was killed is noted":     {change: func(e *evidence) { e.drain.Was, e.drain.Killed = true, true }},
		"nobody took over": {change: func(e *evidence) {
			e.drain.Succeeded = &gates.Succeeded{Reason: "fenced\x1b[2J", GapMS: 20000}
		}, want: []string{"handover-none"}},
		"nobody admitted for too long": {change: func(e *evidence) { e.drain.Succeeded = &gates.Succeeded{Ready: true, GapMS: 1001} }, want: []string{"handover-slow"}},
		"somebody admitted in time":    {change: func(e *evidence) { e.drain.Succeeded = &gates.Succeeded{Ready: true, GapMS: 1000} }},
		"one late, three of four":      {change: func(e *evidence) { e.trial.Points[0].Rows[1].TTFT = ptr(1.5) }},
		"two late": {change: func(e *evidence) {
			e.trial.Points[1].Rows[1].TTFT, e.trial.Points[1].Rows[2].TPOT = ptr(1.5), ptr(0.2)
		}, want: []string{"attainment"}},
		"two late, and the next rate is not run": {change: func(e *evidence) {
			e.trial.Points[0].Rows[1].TTFT, e.trial.Points[0].Rows[2].TPOT = ptr(1.5), ptr(0.2)
			e.stopAfterFirst()
		}, want: []string{"attainment"}},
		"two late, and the next rate is offered all the same": {change: func(e *evidence) {
			e.trial.Points[0].Rows[1].TTFT, e.trial.Points[0].Rows[2].TPOT = ptr(1.5), ptr(0.2)
		}, want: []string{"attainment", "trial-order"}},
		"a rate is not run for no reason": {change: func(e *evidence) { e.stopAfterFirst() }, want: []string{"trial-incomplete"}},
		"another rate is said not to have run": {change: func(e *evidence) {
			e.trial.Points[0].Rows[1].TTFT, e.trial.Points[0].Rows[2].TPOT = ptr(1.5), ptr(0.2)
			e.stopAfterFirst()
			e.trial.NotRun = []float64{11}
		}, want: []string{"attainment", "trial-incomplete"}},
		"not drained before": {change: func(e *evidence) {
			e.stopAfterFirst()
			p := &e.trial.Points[0]
			p.IdleBefore, p.IdleAfter, p.Rows, e.journal.Rows = false, false, nil, nil
		}, damage: func(e *evidence) { e.trial.Points[0].Samples[1].Holds = map[string]int{"http_retained": 2} }, want: []string{"not-drained"}},
		"not drained between": {change: func(e *evidence) { e.stopAfterFirst(); e.trial.Points[0].IdleAfter = false }, want: []string{"not-drained"}},
		"not drained after":   {change: func(e *evidence) { e.trial.Points[1].IdleAfter = false }, want: []string{"not-drained"}},
		"a tunnel that broke": {change: func(e *evidence) {
			e.trial.Points[1].Reconnects, e.trial.Reconnects = 1, 1
			e.journal.Rows = e.journal.Rows[:7] // what is lost with the tunnel is not compared
		}, want: []string{"trial-tunnel"}},
		"a tunnel that broke between rates": {change: func(e *evidence) { e.trial.Reconnects = 1 }, want: []string{"trial-tunnel"}},
		"another router file":               {change: func(e *evidence) { e.trial.After["file/router/fleet.json"] = "w" }, want: []string{"trial-input-changed"}},
		"profiles were not looked at":       {change: func(e *evidence) { delete(e.trial.Before, "file/router/profiles.json") }, want: []string{"trial-input-changed"}},
		"an engine's process changed":       {change: func(e *evidence) { e.trial.After["proc/engine-d0"] = "w" }, want: []string{"trial-process-changed"}},
		"an engine that is gone throughout": {change: func(e *evidence) {
			e.trial.Before["proc/engine-d0"], e.trial.After["proc/engine-d0"] = gates.Gone, gates.Gone
		}, want: []string{"trial-process-changed"}},
		"a handoff that fails":        {change: func(e *evidence) { e.ring.Pairs[1].Error = "decode: status 500\x1b[2J" }, want: []string{"ring-failed"}},
		"a handoff with other tokens": {change: func(e *evidence) { e.ring.Pairs[0].Split = []int{1, 3} }, want: []string{"ring-failed"}},
		"a handoff without tokens":    {change: func(e *evidence) { e.ring.Pairs[0].Split, e.ring.Pairs[0].Unsplit = nil, nil }, want: []string{"ring-failed"}},
		"a handoff that moves no KV":  {change: func(e *evidence) { e.ring.Pairs[0].Moved = 0 }, want: []string{"ring-failed"}},
		"a restart within a handoff":  {change: func(e *evidence) { e.ring.Pairs[0].Restarted = true }, want: []string{"ring-failed"}},
		"a pair left out":             {change: func(e *evidence) { e.ring.Pairs = e.ring.Pairs[:1] }, want: []string{"ring-failed"}},
		"a note that says more":       {damage: func(e *evidence) { e.note.Highest = 20 }, want: []string{"acceptance-wrong"}},
		"a note of other rates":       {damage: func(e *evidence) { e.note.Rates[0].Qualified = 3 }, want: []string{"acceptance-wrong"}},
		"a route that is not there":   {damage: func(e *evidence) { e.note.Routes["/metrics"] = 404 }, want: []string{"route-missing"}},
		"another model":               {damage: func(e *evidence) { e.note.Serves = false }, want: []string{"route-missing"}},
		"an engine without a role":    {damage: func(e *evidence) { e.note.Roles["decode"] = nil }, want: []string{"roles-unknown"}},
		"refused ones count": {change: func(e *evidence) {
			for i := range 2 {
				r := &e.trial.Points[1].Rows[i]
				*r = bench.Row{Index: i, RID: r.RID, ClientRID: r.ClientRID, Sent: true, Status: 429, Error: "busy"}
				e.journal.Rows[4+i].Terminal, e.journal.Rows[4+i].Status = journal.Refused, ptr(429)
			}
		}, want: []string{"attainment"}},
		"what was not sent counts": {change: func(e *evidence) {
			for i := range 2 {
				r := &e.trial.Points[1].Rows[i]
				*r = bench.Row{Index: i, ClientRID: r.ClientRID, Error: "not sent"}
			}
			e.journal.Rows = slices.Delete(e.journal.Rows, 4, 6)
		}, want: []string{"attainment"}},
		"rows left out": {change: func(e *evidence) {
			e.trial.Points[0].Rows = e.trial.Points[0].Rows[:3]
			e.journal.Rows = slices.Delete(e.journal.Rows, 3, 4)
		}, want: []string{"trial-incomplete"}},
		"no rows":         {change: func(e *evidence) { e.trial.Points[1].Rows = nil; e.journal.Rows = e.journal.Rows[:4] }, want: []string{"attainment", "trial-incomplete"}},
		"a rate left out": {change: func(e *evidence) { e.trial.Points = e.trial.Points[:1]; e.journal.Rows = e.journal.Rows[:4] }, want: []string{"trial-incomplete"}},
		"an easier rate":  {change: func(e *evidence) { e.trial.Points[1].Rate = 1 }, want: []string{"trial-incomplete"}},
		"no rate at all": {
			fleet:  func(f *fleet.Fleet) { f.Deploy.Trial.Rates = nil },
			change: func(e *evidence) { e.trial.Points, e.journal.Rows = nil, nil },
			want:   []string{"trial-incomplete"},
		},
		"the score says otherwise": {change: func(e *evidence) { // rows count, not what was made of them
			e.trial.Points[1].Score = bench.Report{Score: bench.Score{Attainment: 1}}
			for i := range e.trial.Points[1].Rows {
				e.trial.Points[1].Rows[i].TTFT = ptr(9.0)
			}
		}, want: []string{"attainment"}},
		"somebody else's requests are counted too": {change: func(e *evidence) {
			e.journal.Windows[0].Others = []Other{{Run: "run-1", Terminal: journal.Completed, Named: true}}
		}},
		"a damaged bundle": {change: func(e *evidence) { e.bundle = e.bundle[:len(e.bundle)/2] }, want: []string{"bundle-damaged"}},
		"no bundle in it":  {change: func(e *evidence) { e.bundle = []byte("x") }, want: []string{"bundle-damaged"}},
	} {
		f := testFleet()
		if c.fleet != nil {
			c.fleet(&f)
		}
		e := good(f, bundled)
		if c.change != nil {
			c.change(e)
		}
		e.counted()
		e.noted(t, f)
		if c.damage != nil {
			c.damage(e)
		}
		v := view(t, f, e.all())
		got := Gate{}.Judge(v)
		var codes []string
		for _, x := range got {
			if !x.Note {
				codes = append(codes, x.Code)
			}
			if x.Message == "" || x.Evidence == "" || x.Hint == "" || strings.ContainsRune(x.Message+x.Got, 0x1b) {
				t.Errorf("%s: finding %+v says too little or too much", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: found %v, want %v: %+v", name, codes, c.want, got)
		}
		if state, _ := gates.Verdict(Gate{}, v, nil); (state == record.VerdictPassed) != (len(c.want) == 0) {
			t.Errorf("%s: verdict %s", name, state)
		}
	}
}

// TestJudgeOfMissingEvidence takes each piece away: the verdict is never passed.
func TestJudgeOfMissingEvidence(t *testing.T) {
	bundled := archive(t)
	for _, k := range (Gate{}).Expect(testFleet()) {
		whole := good(testFleet(), bundled)
		whole.counted()
		whole.noted(t, testFleet())
		e := whole.all()
		delete(e, k)
		if state, missing := gates.Verdict(Gate{}, view(t, testFleet(), e), nil); state != record.VerdictInconclusive || len(missing) != 1 {
			t.Errorf("without %s: %s, %+v", k, state, missing)
		}
	}
}

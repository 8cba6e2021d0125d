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
		Engines: []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}}, Engines: map[string]fleet.Place{"p0": {Host: "h1"}},
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
		router = append(router, journal.Row{RID: rid, ClientRID: &crid, OutputLen: ptr(4), Status: ptr(200), Terminal: journal.Completed})
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

type evidence struct {
	router  gates.Launched
	ready   Ready
	trial   Trial
	journal Journal
	bundle  []byte
}

func TestJudge(t *testing.T) {
	bundled := archive(t)
	for name, c := range map[string]struct {
		fleet  func(*fleet.Fleet)
		change func(*evidence)
		want   []string
	}{
		"good":                    {},
		"not ready":               {change: func(e *evidence) { e.ready = Ready{Reason: "no decode\x1b[2J engine"} }, want: []string{"router-not-ready"}},
		"one late, three of four": {change: func(e *evidence) { e.trial.Points[0].Rows[1].TTFT = ptr(1.5) }},
		"two late":                {change: func(e *evidence) { e.trial.Points[0].Rows[1].TTFT, e.trial.Points[0].Rows[2].TPOT = ptr(1.5), ptr(0.2) }, want: []string{"attainment"}},
		"refused ones count": {change: func(e *evidence) {
			for i := range 2 {
				r := &e.trial.Points[1].Rows[i]
				*r = bench.Row{Index: i, RID: r.RID, ClientRID: r.ClientRID, Sent: true, Status: 429, Error: "busy"}
				e.journal.Rows[4+i].Terminal, e.journal.Rows[4+i].Status = journal.Refused, ptr(429)
			}
		}, want: []string{"attainment"}},
		"what was not sent counts": {change: func(e *evidence) {
			for i := range 2 {
				r := &e.trial.Points[0].Rows[i]
				*r = bench.Row{Index: i, ClientRID: r.ClientRID, Error: "not sent"}
			}
			e.journal.Rows = e.journal.Rows[2:]
		}, want: []string{"attainment"}},
		"rows left out": {change: func(e *evidence) {
			e.trial.Points[0].Rows = e.trial.Points[0].Rows[:3]
			e.journal.Rows = slices.Delete(e.journal.Rows, 3, 4)
		}, want: []string{"trial-incomplete"}},
		"no rows":         {change: func(e *evidence) { e.trial.Points[0].Rows = nil; e.journal.Rows = e.journal.Rows[4:] }, want: []string{"attainment", "trial-incomplete"}},
		"a rate left out": {change: func(e *evidence) { e.trial.Points = e.trial.Points[:1]; e.journal.Rows = e.journal.Rows[:4] }, want: []string{"trial-incomplete"}},
		"an easier rate":  {change: func(e *evidence) { e.trial.Points[1].Rate = 1 }, want: []string{"trial-incomplete"}},
		"no rate at all": {
			fleet:  func(f *fleet.Fleet) { f.Deploy.Trial.Rates = nil },
			change: func(e *evidence) { e.trial.Points, e.journal.Rows = nil, nil },
			want:   []string{"trial-incomplete"},
		},
		"the score says otherwise": {change: func(e *evidence) { // rows count, not what was made of them
			e.trial.Points[0].Score = bench.Report{Score: bench.Score{Attainment: 1}}
			for i := range e.trial.Points[0].Rows {
				e.trial.Points[0].Rows[i].TTFT = ptr(9.0)
			}
		}, want: []string{"attainment"}},
		"missing in the journal":           {change: func(e *evidence) { e.journal.Rows = e.journal.Rows[1:] }, want: []string{"reconciliation"}},
		"a request of somebody else":       {change: func(e *evidence) { _, more := rows("tag0", 5); e.journal.Rows = append(e.journal.Rows, more[4]) }},
		"twice in the journal":             {change: func(e *evidence) { e.journal.Rows = append(e.journal.Rows, e.journal.Rows[0]) }, want: []string{"reconciliation"}},
		"another outcome":                  {change: func(e *evidence) { e.journal.Rows[0].Terminal = journal.Failed }, want: []string{"reconciliation"}},
		"another status":                   {change: func(e *evidence) { e.journal.Rows[0].Status = ptr(500) }, want: []string{"reconciliation"}},
		"another length":                   {change: func(e *evidence) { e.journal.Rows[0].OutputLen = ptr(3) }, want: []string{"reconciliation"}},
		"many mismatches are few findings": {change: func(e *evidence) { e.journal.Rows = nil }, want: slices.Repeat([]string{"reconciliation"}, shownMismatches+1)},
		"a damaged bundle":                 {change: func(e *evidence) { e.bundle = e.bundle[:len(e.bundle)/2] }, want: []string{"bundle-damaged"}},
		"no bundle in it":                  {change: func(e *evidence) { e.bundle = []byte("x") }, want: []string{"bundle-damaged"}},
	} {
		f := testFleet()
		if c.fleet != nil {
			c.fleet(&f)
		}
		e := evidence{ready: Ready{Ready: true}, bundle: bundled}
		for i, rate := range []float64{5, 10} {
			client, router := rows(fmt.Sprint("tag", i), 4)
			e.trial.Points = append(e.trial.Points, Point{Rate: rate, Tag: fmt.Sprint("tag", i), Rows: client})
			e.journal.Rows = append(e.journal.Rows, router...)
		}
		if c.change != nil {
			c.change(&e)
		}
		v := view(t, f, map[record.Key]any{routerKey: e.router, readyKey: e.ready, trialKey: e.trial, journalKey: e.journal, bundleKey: e.bundle})
		got := Gate{}.Judge(v)
		var codes []string
		for _, x := range got {
			codes = append(codes, x.Code)
			if x.Message == "" || x.Evidence == "" || strings.ContainsRune(x.Message+x.Got, 0x1b) {
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
		e := map[record.Key]any{routerKey: gates.Launched{}, readyKey: Ready{Ready: true}, bundleKey: bundled}
		var trial Trial
		var j Journal
		for i, rate := range []float64{5, 10} {
			client, router := rows(fmt.Sprint("tag", i), 4)
			trial.Points, j.Rows = append(trial.Points, Point{Rate: rate, Rows: client}), append(j.Rows, router...)
		}
		e[trialKey], e[journalKey] = trial, j
		delete(e, k)
		if state, missing := gates.Verdict(Gate{}, view(t, testFleet(), e), nil); state != record.VerdictInconclusive || len(missing) != 1 {
			t.Errorf("without %s: %s, %+v", k, state, missing)
		}
	}
}

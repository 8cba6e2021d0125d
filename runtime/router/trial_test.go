package router

import (
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// Traffic of a public trace with failures in it: client and journal must tell the same.
func TestClientAndJournalAgree(t *testing.T) {
	b := startBed(t, 2, 2, quick(), func(c *Config) { c.MaxConcurrent = 24 })
	b.inject("d0", simulated.Injection{Kind: "reset", Count: 2, After: 2})
	b.inject("d1", simulated.Injection{Kind: "error", Count: 2, After: 1})
	b.inject("p0", simulated.Injection{Kind: "busy", Count: 3})
	trace, err := bench.Embedded("azure")
	if err != nil {
		t.Fatal(err)
	}
	plan := bench.Plan{URL: b.url, Model: modelName, Arrivals: trace.Shape(150, 75, 600, 24), Timeout: 20 * time.Second}
	if plan.CharsPerToken, err = bench.Calibrate(limit(t), plan); err != nil {
		t.Fatal(err)
	}
	res, err := bench.Run(limit(t), plan)
	if err != nil {
		t.Fatal(err)
	}
	rep := bench.Evaluate(res.Rows, bench.SLO{TTFT: 2, TPOT: 0.1})
	if rep.Offered != 150 || rep.Completed < 30 || rep.Failed == 0 || rep.Completed+rep.Refused+rep.Failed != 150 || len(rep.ByClass) != 2 {
		t.Errorf("%+v", rep)
	}
	for _, r := range res.Rows {
		if r.Completed && (r.OutputTokens != r.Output || r.PromptTokens < r.Input*8/10 || r.PromptTokens > r.Input*12/10+12) {
			t.Errorf("asked for %d in, %d out; got %d, %d", r.Input, r.Output, r.PromptTokens, r.OutputTokens)
		}
	}
	rows := b.rows()
	ours := rows[:0]
	for _, r := range rows {
		if r.ClientRID != nil && *r.ClientRID != "" && len(*r.ClientRID) > len(res.Tag) && (*r.ClientRID)[:len(res.Tag)] == res.Tag {
			ours = append(ours, r)
		}
	}
	if ms := bench.Reconcile(res.Rows, ours); len(ms) != 0 || len(ours) != 150 {
		t.Errorf("%d rows, mismatches %+v", len(ours), ms)
	}
}

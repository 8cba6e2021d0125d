package main

import (
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

func TestAcceptanceLines(t *testing.T) {
	p95 := 120.5
	a := &serve.Acceptance{Highest: 0.5, Needs: 0.95, Roles: map[string][]string{"prefill": {"e0"}, "decode": {"e1", "e2"}}, NotChecked: []string{"a takeover"},
		Rates: []serve.Carried{
			{Rate: 0.5, Passed: true, Offered: 200, Qualified: 196, Attainment: 0.98, TTFT: bench.Percentiles{P95: &p95}},
			{Rate: 1, Offered: 200, Qualified: 100, Attainment: 0.5, Why: "100 of 200 within the SLO"},
			{Rate: 2, Why: "not run"},
		}}
	want := []string{
		"The highest rate that passed is 0.5 requests/s.",
		"0.5/s: 196 of 200 within the SLO (98.0 %), TTFT p95 120.5 ms, TPOT p95 none",
		"1/s: 100 of 200 within the SLO (50.0 %), TTFT p95 none, TPOT p95 none, did not pass: 100 of 200 within the SLO",
		"2/s: did not pass: not run",
		"decode: e1 e2", "prefill: e0", "not checked: a takeover",
	}
	if got := acceptanceLines(a); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if acceptanceLines(nil) != nil || handedOver(&serve.Acceptance{Needs: 0.9}) != "No rate of the trial passed; 90.0 % of the offered requests must be within the SLO." {
		t.Error("without a note, or a rate that passed")
	}
	states := []string{}
	for _, r := range reportRates(a) {
		states = append(states, r.State)
	}
	if !slices.Equal(states, []string{"passed", "failed", "pending"}) {
		t.Errorf("states %v", states)
	}
}

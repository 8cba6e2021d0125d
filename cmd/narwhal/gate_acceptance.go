package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// accepted adds the acceptance note of the record, where it holds.
func (r runStatus) accepted(state record.State, load func(record.Ref) ([]byte, error)) runStatus {
	v, err := gates.ViewAt(state, load)
	if err != nil {
		return r // a record without readable inputs has no note to show
	}
	if a, ok := serve.AcceptanceOf(v); ok {
		r.Acceptance = &a
	}
	return r
}

// handedOver is the note in one sentence, "" without one.
func handedOver(a *serve.Acceptance) string {
	switch {
	case a == nil:
		return ""
	case a.Highest == 0:
		return fmt.Sprintf("No rate of the trial passed; %.1f %% of the offered requests must be within the SLO.", 100*a.Needs)
	}
	return fmt.Sprintf("The highest rate that passed is %g requests/s.", a.Highest)
}

// acceptanceLines are the note for a terminal.
func acceptanceLines(a *serve.Acceptance) (out []string) {
	if a == nil {
		return nil
	}
	out = append(out, handedOver(a))
	for _, c := range a.Rates {
		var said []string
		if c.Offered > 0 {
			said = append(said, fmt.Sprintf("%d of %d within the SLO (%.1f %%), TTFT p95 %s, TPOT p95 %s", c.Qualified, c.Offered, 100*c.Attainment, msText(c.TTFT.P95), msText(c.TPOT.P95)))
		}
		if !c.Passed {
			said = append(said, "did not pass: "+c.Why)
		}
		line := fmt.Sprintf("%g/s: %s", c.Rate, strings.Join(said, ", "))
		out = append(out, line)
	}
	for _, role := range slices.Sorted(maps.Keys(a.Roles)) {
		out = append(out, fmt.Sprintf("%s: %s", role, strings.Join(a.Roles[role], " ")))
	}
	for _, n := range a.NotChecked {
		out = append(out, "not checked: "+n)
	}
	return out
}

func msText(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%.4g ms", *v)
}

// reportRate is a rate as the page shows it.
type reportRate struct {
	serve.Carried
	State, TTFT, TPOT string
}

func reportRates(a *serve.Acceptance) (out []reportRate) {
	if a == nil {
		return nil
	}
	three := func(p bench.Percentiles) string {
		return msText(p.P50) + " / " + msText(p.P95) + " / " + msText(p.P99)
	}
	for _, c := range a.Rates {
		r := reportRate{Carried: c, State: "failed", TTFT: three(c.TTFT), TPOT: three(c.TPOT)}
		switch {
		case c.Passed:
			r.State = "passed"
		case c.Offered == 0:
			r.State, r.TTFT, r.TPOT = "pending", "", ""
		}
		out = append(out, r)
	}
	return out
}

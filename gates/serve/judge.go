package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Judge checks readiness, scores the trial again from its rows and reconciles them with
// the journal's.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	host := v.Fleet.Deploy.Router.Host
	add := func(code string, key record.Key, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: host, Want: want, Got: got, Evidence: string(key), Hint: hint, Message: fmt.Sprintf("got %s, want %s", got, want)})
	}
	var r Ready
	if v.Decode(readyKey, &r) == nil && !r.Ready {
		add("router-not-ready", readyKey, "a router that admits requests", fmt.Sprintf("%.200q", r.Reason), "its log lies in its host's run folder as router.log")
	}
	out = append(out, judgeStandby(v)...)
	var t Trial
	if v.Decode(trialKey, &t) != nil {
		return out
	}
	if want, got := planned(v.Fleet.Deploy.Trial), t.offered(); len(want) == 0 || !slices.Equal(want, got) {
		add("trial-incomplete", trialKey, list(want), list(got), "give deploy.trial at least one rate, then narwhal gate run --again G")
	}
	slo := bench.SLO{TTFT: v.Fleet.SLO.TTFTS, TPOT: v.Fleet.SLO.TPOTS}
	for _, p := range t.Points {
		s := bench.Evaluate(p.Rows, slo)
		if s.Offered == 0 || !(s.Attainment >= v.Fleet.Deploy.Trial.Attainment) {
			add("attainment", trialKey, fmt.Sprintf("%.1f%% of offered requests within the SLO at %g/s", 100*v.Fleet.Deploy.Trial.Attainment, p.Rate),
				fmt.Sprintf("%.1f%% (%d of %d, %d refused, %d failed%s)", 100*s.Attainment, s.Qualified, s.Offered, s.Refused, s.Failed, commonest(p.Rows)),
				"lower deploy.trial.rates, relax slo, or add engines")
		}
	}
	return append(append(out, reconcile(v, t)...), judgeBundle(v)...)
}

func list(items []string) string {
	if len(items) == 0 {
		return "no rate"
	}
	return strings.Join(items, ", ")
}

// planned says what the fleet's trial offers at each rate.
func planned(t fleet.Trial) []string {
	var out []string
	for _, rate := range t.Rates {
		arrivals, err := Arrivals(t, rate)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, fmt.Sprintf("%d requests at %g/s", len(arrivals), rate))
	}
	return out
}

// offered says what was offered at each rate.
func (t Trial) offered() []string {
	var out []string
	for _, p := range t.Points {
		out = append(out, fmt.Sprintf("%d requests at %g/s", len(p.Rows), p.Rate))
	}
	return out
}

const shownMismatches = 5

func reconcile(v gates.View, t Trial) []record.Finding {
	var j Journal
	if v.Decode(journalKey, &j) != nil {
		return nil // the runner reports missing evidence
	}
	var rows []bench.Row
	for _, p := range t.Points {
		rows = append(rows, p.Rows...)
	}
	var out []record.Finding
	ms := bench.Reconcile(rows, j.Rows)
	for i, m := range ms {
		if i == shownMismatches {
			out = append(out, record.Finding{Code: "reconciliation", Evidence: string(journalKey), Message: fmt.Sprintf("and %d more mismatches", len(ms)-i)})
			break
		}
		out = append(out, record.Finding{Code: "reconciliation", Host: v.Fleet.Deploy.Router.Host, Want: m.Client, Got: m.Journal, Evidence: string(journalKey),
			Hint:    "client and router tell the same request differently: narwhal gate run --again G repeats the trial",
			Message: fmt.Sprintf("request %s: %s: client says %q, journal says %q", m.ClientRID, m.What, m.Client, m.Journal)})
	}
	return out
}

// commonest is what most requests that did not complete were told, in words for a finding.
func commonest(rows []bench.Row) string {
	counts := map[string]int{}
	for _, r := range rows {
		if r.Completed {
			continue
		}
		why := r.Error
		if r.ErrorCode != "" {
			why = r.ErrorCode
		} else if r.ErrorType != "" {
			why = r.ErrorType
		}
		if r.Status != 0 {
			why = fmt.Sprintf("status %d %s", r.Status, why)
		}
		counts[why]++
	}
	best := ""
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		if best == "" || counts[why] > counts[best] {
			best = why
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; most often: %.120s", best)
}

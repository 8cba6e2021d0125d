package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Judge checks readiness, scores the trial again from its rows, reconciles them with the
// journal's and the counters, and checks ring, acceptance note and bundle.
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
	out = append(append(out, judgeDrains(v)...), judgeStandby(v)...)
	out = append(out, judgeMonitoring(v)...)
	var t Trial
	if v.Decode(trialKey, &t) != nil {
		return out
	}
	out = append(out, judgeRates(v, t)...)
	out = append(append(out, judgeRests(v, t)...), reconcile(v, t)...)
	out = append(append(out, judgeRing(v)...), judgeAcceptance(v, t)...)
	return append(out, judgeBundle(v)...)
}

func list(items []string) string {
	if len(items) == 0 {
		return "no rate"
	}
	return strings.Join(items, ", ")
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

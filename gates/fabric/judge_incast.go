package fabric

import (
	"fmt"
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// starved is the part of a fair share that a sender which is shut out does not get in any
// repeat. Streams of equal senders share unevenly, and one whose last packets were dropped
// rests for 200 ms and more: repeats below fairAfter seconds say nothing of fairness.
// For the same reason short repeats are compared with the other hosts' by shortIncast times
// the fleet's share: the link is idle while its senders rest.
const (
	starved     = 0.01
	fairAfter   = 0.5
	shortIncast = 2
)

// judgeIncast holds what each host takes in from all others to the floor of one edge, to
// the other hosts, and to fairness among the senders.
func judgeIncast(v gates.View, e evidence) []record.Finding {
	var out []record.Finding
	got := map[string]float64{}
	seen := map[string]Incast{}
	for _, h := range incastHosts(e.fleet) {
		var i Incast
		if v.Decode(incastKey(h), &i) != nil {
			continue
		}
		seen[h] = i
		if i.Interface != "lo" && len(i.Missing) == 0 {
			got[h] = able(i.Repeat)
		}
	}
	share := e.fab.Outlier
	for h := range got {
		if seen[h].Seconds < fairAfter {
			share = min(shortIncast*e.fab.Outlier, 0.9)
		}
	}
	slow, mid := below(got, share)
	for _, h := range e.hosts {
		i, ok := seen[h]
		if !ok {
			continue
		}
		at := string(incastKey(h))
		for _, s := range slices.Sorted(maps.Keys(i.Missing)) {
			out = append(out, record.Finding{Code: "incast-missing", Host: h, Want: "a connection to " + s, Got: i.Missing[s], Evidence: at,
				Message: fmt.Sprintf("all → %s: %s could not be asked to send: %s", h, s, i.Missing[s]), Hint: "check the link between them; then " + again})
		}
		if len(i.Missing) > 0 {
			continue
		}
		switch {
		case e.tcp() && !(i.Gbps >= e.budget.Floor):
			out = append(out, record.Finding{Code: "incast-slow", Host: h, Want: gbps(e.budget.Floor), Got: gbps(i.Gbps), Evidence: at,
				Message: fmt.Sprintf("all → %s: %s taken in from %d hosts at once, %s required of one edge", h, gbps(i.Gbps), len(i.Shares), gbps(e.budget.Floor)),
				Hint:    "many senders overrun its switch port or its receive queues: look at drops and pauses in the evidence, at ECN or flow control, at ring sizes (ethtool -g); then " + again})
		case slow[h]:
			out = append(out, record.Finding{Code: "incast-outlier", Host: h, Want: gbps(mid), Got: gbps(got[h]), Evidence: at,
				Message: fmt.Sprintf("all → %s: %s taken in, %.0f %% below the other hosts' %s", h, gbps(got[h]), 100*(1-got[h]/mid), gbps(mid)),
				Hint:    "compare its receive side with the others': ring sizes, interrupt placement, switch port; then " + again})
		}
		if i.Interface == "lo" || i.Seconds < fairAfter {
			continue
		}
		fair := i.Gbps / float64(max(1, len(i.Shares)))
		for _, s := range slices.Sorted(maps.Keys(i.Shares)) {
			if i.Shares[s] < starved*fair {
				out = append(out, record.Finding{Code: "incast-unfair", Host: s, Want: gbps(fair), Got: gbps(i.Shares[s]), Evidence: at,
					Message: fmt.Sprintf("all → %s: %s gets %s through, a fair share is %s", h, s, gbps(i.Shares[s]), gbps(fair)),
					Hint:    "its packets are the ones that are dropped or paused: look at its switch port's priority and at the way between them; then " + again})
			}
		}
	}
	return out
}

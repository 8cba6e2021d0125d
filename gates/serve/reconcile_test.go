package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// notHere are diagnostics of a run's folder: a trial keeps its rows in one piece of evidence,
// whose digest the record holds, has no warm-up, and tells inputs and idleness by codes of its own.
var notHere = []string{"client_records_missing", "client_parse_error", "warmup_parse_error", "evidence_changed", "input_changed", "not_idle"}

// TestReconcile provokes every diagnostic that a trial can raise.
func TestReconcile(t *testing.T) {
	raised := map[string]bool{}
	bundled := archive(t)
	point := func(e *evidence) *Point { return &e.trial.Points[0] }
	for name, c := range map[string]struct {
		change, damage func(*evidence)
		want           []string // diagnostics, without those that are but a note
	}{
		"nothing":                           {},
		"missing in the journal":            {change: func(e *evidence) { e.journal.Rows = e.journal.Rows[1:] }, want: []string{"client_journal_count", "client_journal_ids", "completed_count"}},
		"a request of nobody":               {change: func(e *evidence) { _, more := rows("tag-0", 5); e.journal.Rows = append(e.journal.Rows, more[4]) }, want: []string{"client_journal_count", "client_journal_ids", "completed_count"}},
		"twice in the journal":              {change: func(e *evidence) { e.journal.Rows = append(e.journal.Rows, e.journal.Rows[0]) }, want: []string{"client_journal_count", "client_journal_ids", "completed_count"}},
		"another outcome":                   {change: func(e *evidence) { e.journal.Rows[0].Terminal = journal.Failed }, want: []string{"completed_count", "request_mismatch"}},
		"another status":                    {change: func(e *evidence) { e.journal.Rows[0].Status = ptr(500) }, want: []string{"request_mismatch"}},
		"another length":                    {change: func(e *evidence) { e.journal.Rows[0].OutputLen = ptr(3) }, want: []string{"request_mismatch"}},
		"a client without an id":            {change: func(e *evidence) { e.journal.Windows[0].Others = []Other{{Run: "run-1", Terminal: journal.Completed}} }, want: []string{"journal_client_ids_missing"}},
		"counters that counted less":        {damage: func(e *evidence) { point(e).Samples[1].Counters["narwhal_served_total"]-- }, want: []string{"counter_mismatch"}},
		"somebody is counted and not there": {damage: func(e *evidence) { point(e).Samples[1].Counters["narwhal_offered_total"]++ }, want: []string{"counter_mismatch"}},
		"a counter that vanished":           {damage: func(e *evidence) { delete(point(e).Samples[1].Counters, "narwhal_failed_total") }, want: []string{"counter_missing"}},
		"a counter that fell": {damage: func(e *evidence) {
			for i := range 2 {
				point(e).Samples[i].Counters["narwhal_cancelled_total"] = float64(1 - i)
			}
		}, want: []string{"counter_mismatch", "counter_reset"}},
		"another process": {damage: func(e *evidence) {
			for i := range 2 {
				point(e).Samples[i].Run = "run-2"
			}
		}, want: []string{"missing_run_metrics"}},
		"a role that moved untold": {damage: func(e *evidence) { point(e).Samples[1].Counters["narwhal_flips_total"]++ }, want: []string{"role_history_gap"}},
		"a role that moved":        {change: func(e *evidence) { e.journal.Windows[0].Moves = 1 }, damage: func(e *evidence) { point(e).Samples[1].Counters["narwhal_flips_total"]++ }},
		"a look that failed": {damage: func(e *evidence) {
			s := point(e).Samples
			point(e).Samples = []bench.Sample{s[0], {At: s[0].At, Error: "get /metrics: status 500\x1b[2J"}, s[1]}
		}, want: []string{"scrape_error"}},
		"no look at all": {damage: func(e *evidence) { point(e).Samples = nil }, want: []string{"missing_run_metrics", "scrape_error"}},
		"looks far apart": {damage: func(e *evidence) { // a busy workstation proves nothing wrong
			point(e).SampleEveryS = 0.1
		}, want: []string{"scrape_interval_gap"}},
		"another file":           {change: func(e *evidence) { e.journal.Windows[0].Trouble = "replaced" }, want: []string{"journal_replaced"}},
		"a file that was cut":    {change: func(e *evidence) { e.journal.Windows[0].Trouble = "truncated" }, want: []string{"journal_truncated"}},
		"a file of another kind": {change: func(e *evidence) { e.journal.Windows[0].Trouble = "journal: of another version" }, want: []string{"journal_parse_error"}},
		"a line that is none":    {change: func(e *evidence) { e.journal.Windows[0].Bad = 1 }, want: []string{"journal_parse_error"}},
		"no window":              {change: func(e *evidence) { e.journal.Windows = nil }, want: []string{"journal_parse_error", "journal_parse_error"}},
	} {
		f := testFleet()
		e := good(f, bundled)
		if c.change != nil {
			c.change(e)
		}
		e.counted()
		e.noted(t, f)
		if c.damage != nil {
			c.damage(e)
		}
		var codes, want []string
		for _, d := range c.want {
			raised[d] = true
			want = append(want, advices[d].Code)
		}
		for _, x := range (Gate{}).Judge(view(t, f, map[record.Key]any(e.all()))) {
			codes = append(codes, x.Code)
			if x.Note != (x.Code == "reconcile-scrape-interval-gap") || x.Hint == "" || x.Host == "" || strings.ContainsRune(x.Message+x.Got, 0x1b) {
				t.Errorf("%s: %+v", name, x)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, want) {
			t.Errorf("%s: found %v, want %v", name, codes, want)
		}
	}
	for _, d := range bench.Diagnostics() {
		if here := !slices.Contains(notHere, d.Code); here != raised[d.Code] || here != (advices[d.Code].Hint != "") {
			t.Errorf("%s is raised by nothing here, or has no hint", d.Code)
		}
	}
}

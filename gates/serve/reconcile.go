package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// advice is a diagnostic's finding: its code, and what to do.
type advice struct{ Code, Hint string }

// advices are those that a trial can raise. Those of a run's folder cannot be raised here.
var advices = map[string]advice{
	"client_journal_count":       {Code: "reconcile-client-journal-count", Hint: "requests were lost on the way, or the router was started anew: see router.log and router-journal in the bundle, then narwhal gate run --again G"},
	"completed_count":            {Code: "reconcile-completed-count", Hint: "a stream that broke behind the router is completed for one side only: look for what cuts connections between the workstation and the router, then narwhal gate run --again G"},
	"client_journal_ids":         {Code: "reconcile-client-journal-ids", Hint: "something between client and router repeats or drops requests, or another router writes this journal: see ROOT/router on the router's host, then narwhal gate run --again G"},
	"counter_mismatch":           {Code: "reconcile-counter-mismatch", Hint: "the journal dropped rows (its event journal_dropped tells): give its disk room, or set deploy.router.journal.lossless, then narwhal gate run --again G"},
	"journal_client_ids_missing": {Code: "reconcile-journal-client-ids-missing", Hint: "other clients without X-Request-Id use the router: keep them away for the trial, then narwhal gate run --again G"},
	"missing_run_metrics":        {Code: "reconcile-missing-run-metrics", Hint: "the router was started anew within the trial: see router.log for why, then narwhal gate run --again G"},
	"role_history_gap":           {Code: "reconcile-role-history-gap", Hint: "the journal dropped events (journal_dropped tells): give its disk room, then narwhal gate run --again G"},
	"scrape_error":               {Code: "reconcile-scrape-error", Hint: "the router answers /metrics or /narwhal/state late or wrongly: see router.log and its host's load, then narwhal gate run --again G"},
	"scrape_interval_gap":        {Code: "reconcile-scrape-interval-gap", Hint: "this workstation or the router's host was too busy to look in time: give the trial a quieter machine if rows look late too"},
	"counter_missing":            {Code: "reconcile-counter-missing", Hint: "another release answered meanwhile: let nobody replace the router during the trial, then narwhal gate run --again G"},
	"counter_reset":              {Code: "reconcile-counter-reset", Hint: "the router was started anew within the trial: see router.log for why, then narwhal gate run --again G"},
	"journal_replaced":           {Code: "reconcile-journal-replaced", Hint: "let nothing but the router move its journal; keep more ended files (deploy.router.journal.keep), then narwhal gate run --again G"},
	"journal_truncated":          {Code: "reconcile-journal-truncated", Hint: "let nothing cut the journal while it is written (copytruncate of logrotate does), then narwhal gate run --again G"},
	"journal_parse_error":        {Code: "reconcile-journal-parse-error", Hint: "look at the journal in ROOT/router on the router's host: something else writes to it, or its disk is damaged; then narwhal gate run --again G"},
	"request_mismatch":           {Code: "reconcile-request-mismatch", Hint: "compare the request's rows in G/trial and G/journal; narwhal gate run --again G repeats the trial"},
}

// reconcile compares each rate's client rows with the journal, the counters and the looks at
// the router. A rate whose tunnel broke is told of by trial-tunnel, and compares with nothing.
func reconcile(v gates.View, t Trial) (out []record.Finding) {
	var j Journal
	if v.Decode(journalKey, &j) != nil {
		return nil // the runner reports missing evidence
	}
	for i, p := range t.Points {
		if p.Reconnects > 0 || !p.IdleBefore {
			continue
		}
		for _, d := range account(p, i, j).Diagnose() {
			adv, ok := advices[d.Code]
			if !ok {
				continue // not_idle: not-drained tells it
			}
			text := d.Message
			if len(d.Samples) > 0 {
				text += " (" + strings.Join(d.Samples, "; ") + ")"
			}
			out = append(out, record.Finding{Code: adv.Code, Host: v.Fleet.Deploy.Router.Host, Evidence: string(journalKey), Hint: adv.Hint,
				Note: d.Code == "scrape_interval_gap", Want: "one account of the trial", Got: clean(text, 400), Message: fmt.Sprintf("at %s: %s", d.Point, clean(text, 800))})
		}
	}
	return out
}

// account puts together what was seen of one rate. A row of the trial belongs to its rate
// wherever it stands.
func account(p Point, i int, j Journal) bench.Account {
	a := bench.Account{Label: fmt.Sprintf("%g/s", p.Rate), Tag: p.Tag, Rows: p.Rows, Samples: p.Samples, SampleEvery: time.Duration(p.SampleEveryS * float64(time.Second)),
		IdleBefore: p.IdleBefore, IdleAfter: p.IdleAfter, Journal: []journal.Row{}}
	if len(p.Samples) == 0 {
		a.Samples = []bench.Sample{{Error: "the router was not looked at"}}
	}
	for _, r := range j.Rows {
		if r.ClientRID != nil && strings.HasPrefix(*r.ClientRID, p.Tag+"-") {
			a.Journal = append(a.Journal, r)
		}
	}
	if i >= len(j.Windows) {
		a.Trouble = "the evidence has no window of this rate"
		return a
	}
	w := j.Windows[i]
	a.Moves, a.Bad, a.Trouble = w.Moves, w.Bad, w.Trouble
	named := "somebody"
	for _, o := range w.Others {
		r := journal.Row{Terminal: o.Terminal}
		if r.Run = o.Run; o.Named {
			r.ClientRID = &named
		}
		a.Journal = append(a.Journal, r)
	}
	return a
}

// judgeRests wants the inputs and processes of the trial to be the same from first to last.
func judgeRests(v gates.View, t Trial) (out []record.Finding) {
	asked := rests(v.Fleet)
	for _, host := range slices.Sorted(maps.Keys(asked)) {
		for _, name := range asked[host].names() {
			was, is := t.Before[name], t.After[name]
			if was != "" && was == is && was != gates.Gone {
				continue
			}
			kind, what, _ := strings.Cut(name, "/")
			x := record.Finding{Code: "trial-input-changed", Hint: "let nobody write below ROOT/router during the trial, then narwhal gate run --again G"}
			if kind == "proc" {
				x = record.Finding{Code: "trial-process-changed", Hint: "see " + what + ".log in its host's run folder for a crash, then narwhal gate run G: it repeats what the new process needs"}
				if e, ok := strings.CutPrefix(what, "engine-"); ok {
					x.Engine = e
				}
			}
			x.Host, x.Evidence, x.Want = host, string(trialKey), "the same "+what+" before and after the trial"
			x.Got = fmt.Sprintf("%.40q before, %.40q after", was, is)
			x.Message = fmt.Sprintf("%s changed during the trial: got %s, want %s", what, x.Got, x.Want)
			out = append(out, x)
		}
	}
	return out
}

package router

import (
	"context"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// journalWait bounds how long a lossless journal holds a request after its answer.
const journalWait = 30 * time.Second

// finished hands the terminal row to the trace, the journal and the histograms. It runs
// outside the owner, because a lossless journal may make it wait.
func (q *request) finished() {
	row := &q.row
	if !q.started && q.firstToken == 0 {
		q.noOutput()
	}
	row.TraceID = q.endTrace()
	if j := q.r.own.journal; j != nil {
		if !q.r.set.Journal.Lossless {
			j.Put(*row)
		} else {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), journalWait)
			j.PutWait(ctx, *row)
			cancel()
		}
	}
	q.r.metrics.observe(row, row.TraceID)
}

// priced keeps the latest price of the request; a decision without a candidate has none.
func (q *request) priced(attempt int, d sched.Decision) {
	if d.Refused != model.ReasonNoEngine {
		q.row.Price = &journal.Price{Attempt: attempt, Backlog: d.Parts.Queue, Own: d.Own, Elapsed: d.Elapsed, Handoff: d.Parts.Handoff, Price: d.Price}
	}
}

// noOutput fills in what is known of a request whose engines made no token: 0, where nobody
// counted. A row without a number is one whose tokens are not known.
func (q *request) noOutput() {
	for _, n := range []**int{&q.row.OutputLen, &q.row.Observed} {
		if *n == nil {
			*n = ptr(0)
		}
	}
}

// journalOptions are the configured ones, with the router's clock.
func (r *Router) journalOptions() journal.Options {
	o := r.set.Journal
	o.Clock, o.Log = r.own.now, r.set.Logger
	return o
}

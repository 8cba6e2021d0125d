package watch

import (
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

const longText = 400 // bytes of an error kept

func silentRouter(err error) record.Finding {
	got := engine.Printable(err.Error(), longText)
	return record.Finding{Code: "watch-router-silent", Want: "the requests of each engine, from the router", Got: got,
		Message: "nothing was looked at: the router does not say which engines are idle: " + got, Hint: "narwhal gate status --live says what holds; narwhal gate run G starts the router"}
}

func failedHandoff(p Pair, err error) record.Finding {
	got := engine.Printable(err.Error(), longText)
	return record.Finding{Code: "watch-handoff-failed", Engine: p.To, Want: "a handoff with the tokens of an unsplit run", Got: got,
		Message: fmt.Sprintf("handoff %s → %s: %s", p.From, p.To, got), Hint: fmt.Sprintf("see engine-%s.log and engine-%s.log; narwhal gate run --again F looks at all pairs", p.From, p.To)}
}

func unasked(iid string, err error) record.Finding {
	got := engine.Printable(err.Error(), longText)
	return record.Finding{Code: "watch-unattested", Engine: iid, Want: "a signed statement over a new nonce", Got: got,
		Message: fmt.Sprintf("engine %s: %s", iid, got), Hint: "the engine or its sidecar was restarted or has ended: narwhal gate run looks at it and attests it anew"}
}

// overdue tells, as notes, what was not found to hold for too long.
func (w *Watch) overdue(book Book) (out []record.Finding) {
	now := w.now()
	if w.Overdue <= 0 {
		return nil
	}
	late := func(what string, ids []string, marks map[string]Mark) {
		count, longest, worst := 0, time.Duration(0), ""
		for _, id := range ids {
			since := marks[id].Held
			if since.IsZero() {
				since = book.Since
			}
			if gap := now.Sub(since); gap > w.Overdue {
				if count++; gap > longest {
					longest, worst = gap, id
				}
			}
		}
		if count == 0 {
			return
		}
		got := fmt.Sprintf("%d of %d %s, %s for %s", count, len(ids), what, worst, longest.Round(time.Second))
		out = append(out, record.Finding{Code: "watch-overdue", Note: true, Want: "a look that held within " + w.Overdue.String(), Got: got,
			Message: "not found to hold for longer than " + w.Overdue.String() + ": " + got,
			Hint:    "their engines are busy, or the budget is too small for the fleet: raise --budget, or let narwhal gate run --again F look at all at a quiet hour"})
	}
	var pairs []string
	for _, p := range pairsOf(w.Engines) {
		pairs = append(pairs, p.String())
	}
	late("pairs", pairs, book.Pairs)
	late("engines", w.Engines, book.Engines)
	return out
}

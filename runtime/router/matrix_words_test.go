package router

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// client is one whose connections end with the test.
func (b *testbed) client() *http.Client {
	tr := &http.Transport{}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// strikes words what the breakers count: engine and class, sorted.
func (b *testbed) strikes() string {
	var list []string
	b.router.own.do(func() {
		for _, n := range b.router.own.nodes {
			for class, count := range n.streak {
				if count > 0 {
					list = append(list, n.id+" "+class)
				}
			}
		}
	})
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// heard waits until every failed decode leg has been laid at somebody's door.
func (b *testbed) heard() {
	eventually(b.t, "producers are heard", func() (ok bool) {
		b.router.own.do(func() {
			ok = !slices.ContainsFunc(b.router.own.nodes, func(n *node) bool { return len(n.accused) > 0 })
		})
		return ok
	})
}

// outcome words a row's end: the terminal and its reason, or where it was cancelled.
func outcome(r journal.Row) string {
	switch {
	case r.Terminal == journal.Cancelled:
		return r.Terminal + " " + r.CancelledPhase
	case r.Reason != nil:
		return r.Terminal + " " + string(*r.Reason)
	}
	return r.Terminal
}

// failuresOf words a row's attempt_failures.
func failuresOf(r journal.Row) string {
	var list []string
	for _, f := range r.Failures {
		reason, iid := string(f.Reason), f.Decode
		if reason == "" {
			reason = "-"
		}
		if f.Phase == phasePrefill {
			iid = f.Prefill
		}
		on := "-"
		if iid != nil {
			on = *iid
		}
		list = append(list, fmt.Sprintf("%s %s %s %s", f.Phase, reason, on, f.RetryReason))
	}
	return strings.Join(list, ", ")
}

// pinsCount names the check that pinned blocks take room in the router's books.
const pinsCount = "blocks that stay pinned count in their engine's capacity"

func (b *testbed) counts(iid string) (err error) {
	b.router.own.do(func() {
		if b.router.own.node(iid).held == 0 {
			err = fmt.Errorf("the router holds %s to have all its blocks", iid)
		}
	})
	return err
}

// row compares the journal.
func (m matrixRow) row(b *testbed) (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	rows := slices.DeleteFunc(b.rows(), func(r journal.Row) bool { return r.ClientRID == nil || *r.ClientRID != "row" })
	if len(rows) != 1 {
		return []error{fmt.Errorf("%d rows", len(rows))}
	}
	r := rows[0]
	if got := outcome(r); got != m.terminal {
		bad("the row ends %q, want %q", got, m.terminal)
	}
	if got := failuresOf(r); got != m.failures {
		bad("attempt failures %q, want %q", got, m.failures)
	}
	told := false
	readEvents(b.t, b.journal, func(e journal.Event) {
		told = told || e.Name == "handoff_refused"
		iid, _ := e.Fields["iid"].(string)
		switch e.Name {
		case "engine_ejected", "engine_hold_started", "engine_probe":
			if !slices.Contains(strings.Fields(m.may), iid) {
				bad("%s of %s", e.Name, iid)
			}
		}
	})
	if m.failures == notUsed && !told {
		judge(b.t, refusalTold, errors.New("the journal has no handoff_refused"))
	}
	return errs
}

const refusalTold = "a handoff that is not used raises an event"

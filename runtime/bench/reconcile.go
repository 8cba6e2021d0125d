package bench

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Mismatch is one thing that client and journal tell differently.
type Mismatch struct {
	RID       string `json:"rid"`
	ClientRID string `json:"client_rid"`
	What      string `json:"what"` // missing_in_journal, missing_at_client, twice_in_journal, status, outcome, output_tokens
	Client    string `json:"client"`
	Journal   string `json:"journal"`
}

// Reconcile compares a run's client rows with the journal of the same time, by the
// router's request id, or by the client's where no answer came. Journal rows of other
// clients, known by a client id that the run did not use, are left alone only if they
// have one; a row without a client id that no answer names is reported.
func Reconcile(rows []Row, entries []journal.Row) []Mismatch {
	byRID, byClient := map[string]*journal.Row{}, map[string]*journal.Row{}
	var out []Mismatch
	for i := range entries {
		e := &entries[i]
		if byRID[e.RID] != nil {
			out = append(out, Mismatch{RID: e.RID, What: "twice_in_journal", Journal: e.Terminal})
		}
		byRID[e.RID] = e
		if e.ClientRID != nil {
			byClient[*e.ClientRID] = e
		}
	}
	ours, matched := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		ours[r.ClientRID] = true
		e := byRID[r.RID]
		if e == nil {
			e = byClient[r.ClientRID]
		}
		if e == nil {
			if r.RID != "" || r.Sent && r.Status != 0 {
				out = append(out, Mismatch{RID: r.RID, ClientRID: r.ClientRID, What: "missing_in_journal", Client: outcome(r)})
			}
			continue
		}
		matched[e.RID] = true
		out = append(out, compare(r, e)...)
	}
	for i := range entries {
		e := &entries[i]
		if matched[e.RID] || e.ClientRID != nil && !ours[*e.ClientRID] {
			continue
		}
		m := Mismatch{RID: e.RID, What: "missing_at_client", Journal: e.Terminal}
		if e.ClientRID != nil {
			m.ClientRID = *e.ClientRID
		}
		out = append(out, m)
	}
	return out
}

func compare(r Row, e *journal.Row) (out []Mismatch) {
	add := func(what, client, entry string) {
		out = append(out, Mismatch{RID: e.RID, ClientRID: r.ClientRID, What: what, Client: client, Journal: entry})
	}
	if r.Completed != (e.Terminal == journal.Completed) {
		add("outcome", outcome(r), e.Terminal)
	}
	if r.Status != 0 && e.Status != nil && r.Status != *e.Status {
		add("status", fmt.Sprint(r.Status), fmt.Sprint(*e.Status))
	}
	if r.Completed && r.OutputTokens > 0 && e.OutputLen != nil && *e.OutputLen != r.OutputTokens {
		add("output_tokens", fmt.Sprint(r.OutputTokens), fmt.Sprint(*e.OutputLen))
	}
	return out
}

func outcome(r Row) string {
	switch {
	case r.Completed:
		return "completed"
	case r.Status != 0 && r.Status != 200:
		return fmt.Sprintf("status %d", r.Status)
	case !r.Sent:
		return "not sent"
	}
	return "failed: " + r.Error
}

package bench

import (
	"errors"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// ScoreJournal scores all rows that a journal holds, by the router's own times: what the
// client waited before the router knew of a request is not in them. A promise of zero is
// taken from the journal's own parameters.
func ScoreJournal(path string, slo SLO) (RunReport, error) {
	r := RunReport{Dir: path, State: StateComplete, SLO: slo, Points: []PointReport{}, Diagnostics: []Finding{}, Unchecked: []string{"client rows: a journal alone tells what the router saw"}}
	var rows []Row
	torn := 0
	st, err := journal.ReadPath(path, func(l journal.Line) error {
		switch {
		case l.Meta != nil:
			r.SLO.TTFT, r.SLO.TPOT = keep(slo.TTFT, l.Meta.Params.TTFT), keep(slo.TPOT, l.Meta.Params.TPOT)
		case l.Row != nil:
			rows = append(rows, fromJournal(len(rows), l.Row))
			if len(rows) > maxArrivals {
				return fmt.Errorf("more than %d requests", maxArrivals)
			}
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if st.Torn {
		torn = 1
	}
	if n := st.Bad + torn; n > 0 {
		d := &findings{}
		d.add("journal_parse_error", "", n)
		r.Diagnostics = d.out
	}
	if !(r.SLO.TTFT > 0 && r.SLO.TPOT > 0) {
		return r, errors.New("score journal: no promise is known")
	}
	if len(rows) == 0 {
		return r, errors.New("score journal: it holds no request")
	}
	r.Report = Evaluate(rows, r.SLO)
	return r, nil
}

func keep(set, told float64) float64 {
	if set > 0 {
		return set
	}
	return told
}

// fromJournal is a router's row as a client's. Its first token is the first byte that went
// out, its class the band of its input.
func fromJournal(i int, e *journal.Row) Row {
	r := Row{Index: i, Class: band(e.InputLen), At: e.Arrived, RID: e.RID, Input: e.InputLen, Output: e.WantedLen, Sent: true, Duration: e.Duration,
		TTFT: e.FirstByte, TPOT: e.TPOT, Completed: e.Terminal == journal.Completed}
	if e.ClientRID != nil {
		r.ClientRID = *e.ClientRID
	}
	if e.OutputLen != nil {
		r.OutputTokens = *e.OutputLen
	}
	if e.Status != nil {
		r.Status = *e.Status
	}
	if r.TTFT == nil {
		r.TTFT = e.TTFT
	}
	if e.DecodeTPOT != nil {
		r.TPOT = e.DecodeTPOT
	}
	switch e.Terminal {
	case journal.Refused, journal.Rejected:
		r.Outcome, r.RetryAfter = OutcomeRefused, "told"
		if r.Status == 0 {
			r.Status = 503
		}
	case journal.Completed:
		r.Outcome = OutcomeCompleted
	default:
		r.Outcome = e.Terminal
	}
	return r
}

// bands of input lengths, since a journal names no class.
func band(input int) string {
	switch {
	case input < 512:
		return "input-0-511"
	case input < 2048:
		return "input-512-2047"
	case input < 8192:
		return "input-2048-8191"
	}
	return "input-8192-more"
}

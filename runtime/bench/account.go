package bench

import (
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Account is what a point is reconciled from where no folder holds it: rows of the client, rows
// and ends of the journal's window, and looks at the router.
type Account struct {
	Label       string
	Tag         string // begins the client request ids; "RUN-NUMBER" tells points of one run
	Rows        []Row
	Samples     []Sample
	SampleEvery time.Duration
	IdleBefore  bool
	IdleAfter   bool
	// Journal are the ends of all requests in the window; nil = it was not read.
	Journal []journal.Row
	// Moves are the role moves that the window tells.
	Moves int
	// Bad are lines that are none; Trouble is "replaced", "truncated", or why the journal could
	// not be read.
	Bad     int
	Trouble string
}

// Diagnose compares client rows, journal and counters of the point, as Folder.Diagnose does.
func (a Account) Diagnose() []Finding {
	p := PointData{State: StateComplete, Rows: a.Rows, journal: a.Journal, journalBad: a.Bad, moves: a.Moves, samples: a.Samples,
		Info: PointInfo{Label: a.Label, Tag: a.Tag, SampleEveryS: a.SampleEvery.Seconds(), IdleBefore: &a.IdleBefore, IdleAfter: &a.IdleAfter, JournalError: a.Trouble}}
	d := &findings{point: a.Label}
	p.diagnose(d)
	return d.out
}

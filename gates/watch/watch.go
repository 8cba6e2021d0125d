// Package watch keeps verifying a fleet that passed its gates: one directed pair and one engine
// at a time, in turn, while the router has nothing for them to do.
//
// It promises that every pair and every engine has its turn before any has a second one, as far
// as load lets it, that looking takes no more of an engine's time than its budget, and that both
// survive a restart of the command. It refuses to look at an engine that has requests, or of
// which the router says nothing, and to write to the record: it keeps a journal of its own.
package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// Probes is what a watch asks of the fleet. Findings are what does not hold; an error is what
// kept it from being asked.
type Probes interface {
	// Resident are the requests of each engine, as the router knows them.
	Resident(context.Context) (map[string]int, error)
	// Handoff does a real handoff and compares its output.
	Handoff(context.Context, Pair) ([]record.Finding, error)
	// Attest asks an engine's sidecar for a statement over a new nonce and verifies it.
	Attest(ctx context.Context, iid string) ([]record.Finding, error)
}

// Watch is one command's look at one run.
type Watch struct {
	Engines []string
	Probes  Probes
	Budget  Budget
	// Overdue is how long a pair or an engine may go without a look that held; 0 = for ever.
	Overdue time.Duration
	// Book and Journal are files; Now is the clock, nil for the real one.
	Book, Journal string
	Now           func() time.Time
}

// Round is a line of the journal: what one round looked at.
type Round struct {
	Schema  string    `json:"schema"`
	Version int       `json:"schema_version"`
	Run     string    `json:"run"`
	Round   int64     `json:"round"`
	At      time.Time `json:"at"`
	// Pair and Engine are what had its turn, nil and "" where none could.
	Pair    *Pair  `json:"pair,omitempty"`
	Engine  string `json:"engine,omitempty"`
	PairMS  int64  `json:"pair_ms,omitempty"`
	AskedMS int64  `json:"attest_ms,omitempty"`
	// Busy are engines with requests, Spent such as used their budget up.
	Busy     []string         `json:"busy,omitempty"`
	Spent    []string         `json:"spent,omitempty"`
	Findings []record.Finding `json:"findings,omitempty"`
}

// Looked reports whether anything had its turn.
func (r Round) Looked() bool { return r.Pair != nil || r.Engine != "" }

func (w *Watch) now() time.Time {
	if w.Now != nil {
		return w.Now().UTC()
	}
	return time.Now().UTC()
}

// Run goes round until ctx ends or the rounds are done, 0 for no end, and tells each.
func (w *Watch) Run(ctx context.Context, run string, rounds int, every time.Duration, tell func(Round)) error {
	book, err := Open(w.Book, run, w.now())
	if err != nil {
		return err
	}
	book.keep(w.Engines)
	for n := 1; ; n++ {
		r, err := w.round(ctx, &book)
		if err != nil {
			return err
		}
		tell(r)
		if n == rounds || !pause.For(ctx, every) {
			return nil
		}
	}
}

// round looks at one pair and one engine and writes what came of it.
func (w *Watch) round(ctx context.Context, book *Book) (Round, error) {
	book.Rounds++
	r := Round{Schema: Schema, Version: Version, Run: book.Run, Round: book.Rounds, At: w.now()}
	resident, err := w.Probes.Resident(ctx)
	if err != nil {
		r.Findings = append(r.Findings, silentRouter(err))
	}
	for _, id := range w.Engines {
		if n, known := resident[id]; err == nil && (!known || n > 0) {
			r.Busy = append(r.Busy, id)
		} else if !w.Budget.may(book.Purses[id], r.At) {
			r.Spent = append(r.Spent, id)
		}
	}
	if err == nil {
		w.pair(ctx, book, &r)
		w.engine(ctx, book, &r)
	}
	if ctx.Err() != nil { // what was cut off had no turn
		return r, nil
	}
	r.Findings = append(r.Findings, w.overdue(*book)...)
	if err := book.save(w.Book); err != nil {
		return r, err
	}
	return r, appendLine(w.Journal, r)
}

func (w *Watch) free(book *Book, r *Round, id string) bool {
	return !slices.Contains(r.Busy, id) && w.Budget.may(book.Purses[id], w.now())
}

func (w *Watch) pair(ctx context.Context, book *Book, r *Round) {
	next, ok := oldest(pairsOf(w.Engines), func(p Pair) time.Time { return book.Pairs[p.String()].At },
		func(p Pair) bool { return w.free(book, r, p.From) && w.free(book, r, p.To) })
	if !ok {
		return
	}
	begin := w.now()
	found, err := w.Probes.Handoff(ctx, next)
	if ctx.Err() != nil {
		return
	}
	end := w.now()
	if err != nil {
		found = append(found, failedHandoff(next, err))
	}
	r.Pair, r.PairMS, r.Findings = &next, end.Sub(begin).Milliseconds(), append(r.Findings, found...)
	mark(book.Pairs, next.String(), end, codes(found))
	for _, id := range []string{next.From, next.To} {
		book.Purses[id] = w.Budget.charge(book.Purses[id], end, end.Sub(begin))
	}
}

func (w *Watch) engine(ctx context.Context, book *Book, r *Round) {
	next, ok := oldest(w.Engines, func(id string) time.Time { return book.Engines[id].At }, func(id string) bool { return !slices.Contains(r.Busy, id) && !slices.Contains(r.Spent, id) })
	if !ok || ctx.Err() != nil {
		return
	}
	begin := w.now()
	found, err := w.Probes.Attest(ctx, next)
	if ctx.Err() != nil {
		return
	}
	end := w.now()
	if err != nil {
		found = append(found, unasked(next, err))
	}
	r.Engine, r.AskedMS, r.Findings = next, end.Sub(begin).Milliseconds(), append(r.Findings, found...)
	mark(book.Engines, next, end, codes(found))
	book.Purses[next] = w.Budget.charge(book.Purses[next], end, end.Sub(begin))
}

func codes(found []record.Finding) (out []string) {
	for _, f := range found {
		if !f.Note && !slices.Contains(out, f.Code) {
			out = append(out, f.Code)
		}
	}
	return out
}

// appendLine adds a line to the journal, whole and on disk.
func appendLine(path string, r Round) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the watch's journal: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write the watch's journal: %w", err)
	}
	return nil
}

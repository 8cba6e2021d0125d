package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// measured is a point with what is kept around it.
type measured struct {
	*conductor
	dir  string
	info *PointInfo
}

// run offers the point between two looks at an idle router, with samples between them and
// the journal's window around them.
func (m *measured) run(ctx context.Context, p Point) (res Result, err error) {
	samples, err := appendLines(filepath.Join(m.dir, fileSamples))
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, samples.Close()) }()
	if err := m.look(ctx, fileBefore, samples, &m.info.IdleBefore); err != nil {
		return res, err
	}
	var w *window
	if m.Journal != "" {
		if w, err = openWindow(m.Journal); err != nil {
			return res, err
		}
		defer w.Close()
	}
	m.info.Started = time.Now().UTC()
	if err := writeJSON(filepath.Join(m.dir, filePoint), m.info); err != nil {
		return res, err
	}
	if res, err = m.offer(ctx, p, samples); res.Rows == nil {
		return res, err
	}
	m.info.Started = res.Started.UTC()
	// The rest is owed to what was measured, even after a stop.
	kept := context.WithoutCancel(ctx)
	err = errors.Join(err, m.look(kept, fileAfter, samples, &m.info.IdleAfter))
	if w != nil {
		err = errors.Join(err, m.keepJournal(kept, w, res.Due()))
	}
	return res, err
}

// look waits for an idle router and keeps its pages.
func (m *measured) look(ctx context.Context, name string, samples *lines, idle **bool) error {
	if m.router == nil {
		return nil
	}
	l, ok := m.router.drained(ctx, m.Idle)
	if ctx.Err() != nil {
		return nil // the stop ended the look, not the router
	}
	*idle = &ok
	samples.add(l.Sample)
	if !ok && l.Error == "" {
		m.Progress(fmt.Sprintf("the router holds %d requests of its own or of others after %s", l.Busy, m.Idle))
	}
	var errs []error
	for ext, page := range map[string][]byte{".metrics.txt": l.metrics, ".state.json": l.state} {
		if page != nil {
			errs = append(errs, atomicfile.Write(filepath.Join(m.dir, name+ext), page, 0o600))
		}
	}
	return errors.Join(errs...)
}

// saidEvery is how often a point in progress is told of.
const saidEvery = 30 * time.Second

func (m *measured) offer(ctx context.Context, p Point, samples *lines) (res Result, err error) {
	rows, err := appendLines(filepath.Join(m.dir, filePartRows))
	if err != nil {
		return res, err
	}
	var ended, good atomic.Int64
	plan := m.plan(m.info.Tag, fmt.Sprintf("%s point %d", m.Salt, m.info.Index+1), p)
	plan.OnRow = func(r Row) {
		ended.Add(1)
		if Qualified(r, m.SLO) {
			good.Add(1)
		}
		rows.add(r)
	}
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	if m.router != nil && m.SampleEvery > 0 {
		wg.Go(func() { m.router.sample(beside, m.SampleEvery, func(s Sample) { samples.add(s) }) })
	}
	wg.Go(func() {
		t := time.NewTicker(saidEvery)
		defer t.Stop()
		for {
			select {
			case <-beside.Done():
				return
			case <-t.C:
				m.Progress(fmt.Sprintf("%s: %d of %d ended, %d within the promise", p.Label, ended.Load(), len(p.Arrivals), good.Load()))
			}
		}
	})
	m.Progress(fmt.Sprintf("%s: %d requests%s", p.Label, len(p.Arrivals), length(p)))
	res, err = Run(ctx, plan)
	stop()
	wg.Wait()
	m.Progress(fmt.Sprintf("%s: %d ended in %s, %d within the promise", p.Label, ended.Load(), res.Elapsed.Round(time.Second/10), good.Load()))
	return res, errors.Join(err, rows.Close())
}

// length says how long a point takes, where that is known.
func length(p Point) string {
	switch {
	case p.Concurrency > 0 && p.Until > 0:
		return fmt.Sprintf(" at most, %d at a time, for %s", p.Concurrency, p.Until)
	case p.Concurrency > 0:
		return fmt.Sprintf(", %d at a time", p.Concurrency)
	}
	return fmt.Sprintf(" in %s", Horizon(p.Arrivals).Round(time.Second/10))
}

// keepJournal copies the journal's window once the rows of this point are in it.
func (m *measured) keepJournal(ctx context.Context, w *window, rows []Row) error {
	answered := 0
	for _, r := range rows {
		if r.RID != "" {
			answered++
		}
	}
	path := filepath.Join(m.dir, fileJournal)
	for end := time.Now().Add(journalWithin); ; pause.For(ctx, 200*time.Millisecond) {
		found, err := m.copyWindow(path, w)
		switch {
		case errors.Is(err, errReplaced):
			m.info.JournalError = "replaced"
		case errors.Is(err, errTruncated):
			m.info.JournalError = "truncated"
		case err != nil:
			m.info.JournalError = short(err.Error())
		}
		if err != nil || found >= answered || !time.Now().Before(end) {
			return nil // told by the diagnostics
		}
	}
}

func (m *measured) copyWindow(path string, w *window) (found int, err error) {
	f, err := os.CreateTemp(m.dir, ".atomic-journal-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) // gone already when renamed
	if err = w.copy(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return 0, err
	}
	_, err = readJournal(path, func(l journal.Line) {
		if l.Row != nil && l.Row.ClientRID != nil && strings.HasPrefix(*l.Row.ClientRID, m.info.Tag+"-") {
			found++
		}
	})
	return found, errors.Join(err, atomicfile.SyncDir(m.dir))
}

// readJournal reads a copied window line by line.
func readJournal(path string, each func(journal.Line)) (journal.Stats, error) {
	f, err := openFile(path)
	if err != nil {
		return journal.Stats{}, err
	}
	defer f.Close()
	return journal.Read(f, func(l journal.Line) error { each(l); return nil })
}

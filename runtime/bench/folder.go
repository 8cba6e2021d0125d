package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/narwhal-fleet/narwhal/internal/filelock"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Folder is a run as it lies on disk. Reading it changes nothing of its evidence.
type Folder struct {
	Dir       string
	Manifest  Manifest
	State     string // of the manifest, or died
	Points    []PointData
	warmupBad int
	changed   []string // evidence that is not what it was when the run ended
}

// PointData is a point that was begun.
type PointData struct {
	Info     PointInfo
	State    string
	Arrivals []Arrival
	Rows     []Row // of all offers that were due, in order

	noRows     bool
	rowsBad    int
	journal    []journal.Row // nil = none was kept
	journalBad int
	journalErr string
	moves      int // role moves in the journal
	samples    []Sample
	samplesBad int
}

// maxPoints bounds the points of a folder.
const maxPoints = 10_000

// ErrNoRun: the folder holds no run.
var ErrNoRun = errors.New("no bench run")

// ReadFolder reads a run, also one that goes on, was stopped or died.
func ReadFolder(dir string) (*Folder, error) {
	f := &Folder{Dir: dir}
	switch err := readJSON(filepath.Join(dir, fileRun), &f.Manifest); {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: it has no %s", dir, ErrNoRun, fileRun)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir, err)
	case f.Manifest.Schema != Schema || f.Manifest.Version != Version:
		return nil, fmt.Errorf("%s: %w: %.60q version %d", dir, ErrNoRun, f.Manifest.Schema, f.Manifest.Version)
	case len(f.Manifest.Points) > maxPoints:
		return nil, fmt.Errorf("%s: %w: %d points", dir, ErrNoRun, len(f.Manifest.Points))
	}
	if !slices.Contains([]string{StateRunning, StateComplete, StatePartial}, f.Manifest.State) {
		return nil, fmt.Errorf("%s: %w: state %.60q", dir, ErrNoRun, f.Manifest.State)
	}
	f.State = f.Manifest.State
	if f.State == StateRunning && !held(filepath.Join(dir, fileRun)) {
		f.State = StateDied
	}
	if _, bad, err := readLinesFile[Row](filepath.Join(dir, fileWarmup)); err == nil {
		f.warmupBad = bad
	}
	f.changed = changedEvidence(dir, f.Manifest.Files)
	for i := range f.Manifest.Points {
		at := pointDir(dir, i)
		if !exists(filepath.Join(at, filePoint)) {
			if f.State == StateComplete {
				return nil, fmt.Errorf("%s: point %d: the run is complete and has no %s of it", dir, i+1, filePoint)
			}
			continue
		}
		p, err := readPoint(at, f.State)
		if err != nil {
			return nil, fmt.Errorf("%s: point %d: %w", dir, i+1, err)
		}
		f.Points = append(f.Points, p)
	}
	return f, nil
}

// changedEvidence names the files that are missing or have another digest than was noted.
func changedEvidence(dir string, sums map[string]string) (names []string) {
	for name, want := range sums {
		got := ""
		if filepath.IsLocal(filepath.FromSlash(name)) {
			got, _ = digestFile(filepath.Join(dir, filepath.FromSlash(name)))
		}
		if got != want {
			names = append(names, short(name))
		}
	}
	slices.Sort(names)
	return names
}

// held reports whether a process holds the run. A lock that cannot be tried, as on another
// machine's disk, tells of none.
func held(path string) bool {
	if !exists(path + ".lock") {
		return false
	}
	h, err := filelock.Take(path)
	if err == nil {
		h.Release()
	}
	var other *filelock.HeldError
	return errors.As(err, &other)
}

func readPoint(dir, run string) (PointData, error) {
	var p PointData
	if err := readJSON(filepath.Join(dir, filePoint), &p.Info); err != nil {
		return p, err
	}
	if !(p.Info.ElapsedS >= 0 && p.Info.ElapsedS <= longest) {
		return p, errors.New("point.json: elapsed_s is out of range")
	}
	p.State = p.Info.State
	if p.State == StateRunning {
		p.State = run
	}
	t, err := Open(filepath.Join(dir, fileArrivals), "")
	if err != nil {
		return p, err
	}
	p.Arrivals = t.Arrivals
	if err := p.readRows(dir); err != nil {
		return p, err
	}
	if p.State == StateDied {
		p.addLost()
	}
	if p.samples, p.samplesBad, err = readLinesFile[Sample](filepath.Join(dir, fileSamples)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	p.readJournal(filepath.Join(dir, fileJournal))
	return p, nil
}

// readRows takes the ordered rows, or those of a point that did not end.
func (p *PointData) readRows(dir string) (err error) {
	for _, name := range []string{fileRows, filePartRows} {
		p.Rows, p.rowsBad, err = readLinesFile[Row](filepath.Join(dir, name))
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		p.noRows, err = true, nil
	}
	seen := make(map[int]bool, len(p.Rows))
	kept := p.Rows[:0]
	for _, r := range p.Rows {
		if r.Index < 0 || r.Index >= len(p.Arrivals) || seen[r.Index] || !r.sane() {
			p.rowsBad++
			continue
		}
		seen[r.Index] = true
		kept = append(kept, r)
	}
	p.Rows = kept
	sortRows(p.Rows)
	return err
}

// longest bounds the times of a row, in seconds.
const longest = 1e9

// sane refuses a row with times or counts that no run has.
func (r Row) sane() bool {
	for _, v := range []*float64{&r.At, &r.Lag, &r.Duration, r.TTFT, r.TPOT} {
		if v != nil && !(*v >= -longest && *v <= longest) {
			return false
		}
	}
	return r.OutputTokens >= 0 && r.OutputTokens <= maxLength && r.PromptTokens >= 0 && r.PromptTokens <= maxLength
}

// addLost counts as offered what was due before the last thing that a dead run recorded,
// and has no row.
func (p *PointData) addLost() {
	if p.Info.Closed > 0 {
		return // no request of a closed loop has a moment of its own
	}
	last, seen := 0.0, map[int]bool{}
	for _, r := range p.Rows {
		last, seen[r.Index] = max(last, r.At+r.Duration), true
	}
	for i, a := range p.Arrivals {
		if at := a.At.Seconds(); !seen[i] && at <= last {
			p.Rows = append(p.Rows, Row{Index: i, Class: a.Class, At: at, Input: a.Input, Output: a.Output, ClientRID: fmt.Sprintf("%s-%d", p.Info.Tag, i),
				Outcome: OutcomeLost, Error: "no record: the load generator died"})
		}
	}
	sortRows(p.Rows)
}

func (p *PointData) readJournal(path string) {
	if !exists(path) {
		return
	}
	p.journal = []journal.Row{}
	st, err := readJournal(path, func(l journal.Line) {
		switch {
		case l.Row != nil:
			l.Row.Decision, l.Row.Failures = nil, nil
			p.journal = append(p.journal, *l.Row)
		case l.Event != nil && l.Event.Name == "role_moved":
			p.moves++
		}
	})
	if p.journalBad = st.Bad; st.Torn {
		p.journalBad++
	}
	if err != nil {
		p.journalErr = short(err.Error())
	}
}

package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Schema and Version name the documents of a run's folder.
const (
	Schema  = "narwhal.bench-run"
	Version = 1
)

// States of a run and of a point.
const (
	StateRunning  = "running"
	StateComplete = "complete"
	StatePartial  = "partial" // ended before its end, in good order
	StateDied     = "died"    // by the reader: running, and no process holds it
)

// Manifest is run.json: what was asked for, and how far it came.
type Manifest struct {
	Schema  string          `json:"schema"`
	Version int             `json:"schema_version"`
	ID      string          `json:"id"`
	State   string          `json:"state"`
	Because string          `json:"because,omitempty"` // of a partial run
	Started time.Time       `json:"started"`
	Ended   *time.Time      `json:"ended"`
	Package string          `json:"version"` // of narwhal
	Go      string          `json:"go"`
	System  string          `json:"system"`
	CPUs    int             `json:"cpus"`
	Seed    uint64          `json:"seed"`
	Salt    string          `json:"salt"`
	SLO     SLO             `json:"slo"`
	Config  json.RawMessage `json:"config"` // the command's settings
	Inputs  []Input         `json:"inputs"`
	Points  []string        `json:"points"` // labels, in order
	// Files are the digests of all evidence when the run ended, by path below its folder.
	Files map[string]string `json:"files_sha256,omitempty"`
}

// Input is a file that a run rests on.
type Input struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	After  string `json:"sha256_after,omitempty"` // set when the run ended
}

// PointInfo is point.json.
type PointInfo struct {
	Schema        string    `json:"schema"`
	Version       int       `json:"schema_version"`
	Index         int       `json:"index"` // from 0
	Label         string    `json:"label"`
	State         string    `json:"state"`
	Tag           string    `json:"tag"` // begins the request ids
	Planned       int       `json:"planned"`
	Offers        string    `json:"offers_sha256"` // of arrivals.csv
	Closed        int       `json:"concurrency,omitempty"`
	CharsPerToken float64   `json:"chars_per_token"`
	Started       time.Time `json:"started"`
	ElapsedS      float64   `json:"elapsed_s"`
	SampleEveryS  float64   `json:"sample_every_s"`
	IdleBefore    *bool     `json:"idle_before"` // null = the server tells no state
	IdleAfter     *bool     `json:"idle_after"`
	Journal       string    `json:"journal"`       // path, "" = none
	JournalError  string    `json:"journal_error"` // replaced, truncated, or what went wrong
}

// The files of a run's folder; those below its points have a folder each.
const (
	fileRun      = "run.json"
	fileReport   = "report.json"
	fileWarmup   = "warmup.jsonl"
	filePoint    = "point.json"
	fileArrivals = "arrivals.csv"
	fileRows     = "requests.jsonl"
	filePartRows = "requests.part.jsonl" // while the point runs, in the order of ends
	fileJournal  = "journal.jsonl"
	fileSamples  = "samples.jsonl"
	fileBefore   = "before" // .metrics.txt and .state.json
	fileAfter    = "after"
)

func pointDir(dir string, index int) string {
	return filepath.Join(dir, "points", fmt.Sprintf("%03d", index+1))
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return atomicfile.Write(path, append(b, '\n'), 0o600)
}

func writeLines[T any](path string, lines []T) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(path), err)
		}
	}
	return atomicfile.Write(path, b.Bytes(), 0o600)
}

// lines appends JSON lines from several goroutines without making them wait for a disk.
type lines struct {
	in   chan any
	done chan error
}

// linesAhead is how many lines may wait; whoever comes then waits for the disk.
const linesAhead = 8192

func appendLines(path string) (*lines, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	l := &lines{make(chan any, linesAhead), make(chan error, 1)}
	go func() { l.done <- errors.Join(l.write(f), f.Sync(), f.Close()) }()
	return l, nil
}

// write flushes whenever nothing waits, so that a killed process loses next to nothing.
func (l *lines) write(f io.Writer) (err error) {
	w := bufio.NewWriterSize(f, 64<<10)
	enc := json.NewEncoder(w)
	for v := range l.in {
		if err != nil {
			continue
		}
		if err = enc.Encode(v); err == nil && len(l.in) == 0 {
			err = w.Flush()
		}
	}
	return errors.Join(err, w.Flush())
}

func (l *lines) add(v any) { l.in <- v }

func (l *lines) Close() error {
	close(l.in)
	return <-l.done
}

// readLines reads JSON lines: what it could read, and how many lines it could not. A last
// line without an end was cut off by a crash and is no bad one.
func readLines[T any](r io.Reader) (out []T, bad int, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return out, bad, err
		}
		var v T
		switch {
		case long:
			bad++
		case len(bytes.TrimSpace(line)) == 0:
		case json.Unmarshal(line, &v) == nil:
			out = append(out, v)
		case err == nil:
			bad++
		}
		if err != nil {
			return out, bad, nil
		}
		if len(out)+bad > maxArrivals {
			return out, bad, fmt.Errorf("more than %d lines", maxArrivals)
		}
	}
}

// openFile opens evidence to be read. Anything but a regular file, a pipe for example, would wait.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", filepath.Base(path), cmp.Or(err, errNoFile))
	}
	return f, nil
}

var errNoFile = errors.New("it is no regular file")

func readLinesFile[T any](path string) ([]T, int, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	return readLines[T](f)
}

// maxDocument bounds a JSON document of a folder.
const maxDocument = 16 << 20

func readJSON(path string, v any) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	if len(b) > maxDocument {
		return fmt.Errorf("read %s: more than %d bytes", filepath.Base(path), maxDocument)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

package journal

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// diary is a log that is read while it is written.
type diary struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.Write(p)
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.String()
}

func (d *diary) log() *slog.Logger { return slog.New(slog.NewTextHandler(d, nil)) }

func rowsIn(t *testing.T, path string) []Row {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, st, err := ReadRows(f)
	if err != nil || st.Bad > 0 || st.Torn {
		t.Fatalf("%+v, %v", st, err)
	}
	return rows
}

// What another process writes into the file, or cuts from it, costs no row that follows.
func TestAnotherProcessChangesTheFile(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"a torn line": func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("garbage")
			}
			return errors.Join(err, f.Close())
		},
		"cut in a line": func(p string) error {
			st, err := os.Stat(p)
			return errors.Join(err, os.Truncate(p, st.Size()-20))
		},
		"emptied": func(p string) error { return os.Truncate(p, 0) },
	} {
		path := filepath.Join(t.TempDir(), "j.jsonl")
		var log diary
		j, err := Open(path, "run", Meta{}, Options{Log: log.log()})
		if err != nil {
			t.Fatal(err)
		}
		j.Put(Row{RID: "before", Terminal: Completed})
		await(t, "the first row", func() bool { return j.Written() == 2 })
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		j.Put(numbered(0))
		await(t, "the next row", func() bool { return j.Written() >= 3 })
		j.Put(numbered(1))
		if err := j.Close(limited(t)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows, _, err := ReadRows(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) > 2 {
			rows = rows[len(rows)-2:]
		}
		if inOrder(t, rows, 2); strings.Count(string(b), `"event":"journal_changed"`) != 1 {
			t.Errorf("%s: the file says %s", name, b)
		}
		if !strings.HasPrefix(string(b), `{"meta"`) {
			t.Errorf("%s: the file begins without a meta line: %.80s", name, b)
		}
		if got := log.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "bytes_after") {
			t.Errorf("%s: the log says %s", name, got)
		}
	}
}

// What is written after the file went away is in a new one at the same path.
func TestARemovedFileIsMadeAnew(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string) error
		cause string
	}{
		"removed": {os.Remove, "removed"},
		"folder":  {func(p string) error { return os.RemoveAll(filepath.Dir(p)) }, "removed"},
		"moved":   {func(p string) error { return os.Rename(p, p+".1") }, "removed"},
		"replaced": {func(p string) error {
			return errors.Join(os.Rename(p, p+".1"), os.WriteFile(p, nil, 0o600))
		}, "replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runs", "j.jsonl")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			var log diary
			j, err := Open(path, "run", Meta{}, Options{Log: log.log(), MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			j.Put(Row{RID: "before", Terminal: Completed})
			await(t, "the first row", func() bool { return j.Written() == 2 })
			if err := c.spoil(path); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				j.Put(numbered(i))
			}
			await(t, "the new file", func() bool { return j.Health().Reopened == 1 && j.Written() >= 7 })
			if _, err := Take(path); err == nil {
				t.Error("the new file is not held")
			}
			if err := j.Close(limited(t)); err != nil {
				t.Fatal(err)
			}
			inOrder(t, rowsIn(t, path), 3)
			b, _ := os.ReadFile(path)
			if !strings.HasPrefix(string(b), `{"meta"`) || !strings.Contains(string(b), `"event":"journal_reopened"`) || !strings.Contains(string(b), `"cause":"`+c.cause+`"`) {
				t.Errorf("the file says %s", b)
			}
			if got := log.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, path) || !strings.Contains(got, c.cause) {
				t.Errorf("the log says %s", got)
			}
		})
	}
}

// A path that is something else by now is a failure like a full disk: nothing is lost.
func TestAForeignFileInTheJournalsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	var log diary
	j, err := Open(path, "run", Meta{}, Options{Log: log.log(), backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the meta line", func() bool { return j.Written() == 1 })
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("important"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		j.Put(numbered(i))
	}
	await(t, "a failure", func() bool { return j.Health().Errors > 3 })
	if h := j.Health(); !h.Failing || h.Queued != 3 || !errors.Is(j.Err(), ErrForeign) {
		t.Errorf("%+v", h)
	}
	if b, _ := os.ReadFile(path); string(b) != "important" {
		t.Errorf("the file is now %q", b)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	inOrder(t, rowsIn(t, path), 3)
	if got := log.text(); strings.Count(got, "journal cannot be written") != 1 || strings.Count(got, "journal is written again") != 1 {
		t.Errorf("the log says %s", got)
	}
}

// One line tells that the file fails, one that it no longer does, and what that cost.
func TestAFailureIsLoggedOnce(t *testing.T) {
	f := &faulty{room: 1500, failed: make(chan struct{}, 1)}
	var log diary
	j := New(f, "run", Meta{}, Options{backoff: time.Millisecond, Rows: 5, Log: log.log()})
	await(t, "the meta line", func() bool { return j.Written() == 1 })
	for i := range 20 {
		j.Put(numbered(i))
		if i == 4 {
			await(t, "failures", func() bool { return j.Health().Errors > 5 })
		}
	}
	if got := log.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, syscall.ENOSPC.Error()) {
		t.Errorf("while it fails the log says %s", got)
	}
	lost := j.Dropped()
	f.grow(1 << 20)
	await(t, "its end", func() bool { return !j.Health().Failing })
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if got := log.text(); lost == 0 || strings.Count(got, "\n") != 2 || !strings.Contains(got, "journal is written again") || !strings.Contains(got, "lost=") || strings.Contains(got, "lost=0") {
		t.Errorf("%d are lost, and the log says %s", lost, got)
	}
}

// A rotation that fails again and again is told once.
func TestAFailingRotationIsLoggedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	if err := os.WriteFile(nextName(path), []byte("important"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log diary
	var minutes atomic.Int64
	clock := func() time.Time { return time.Unix(60*minutes.Add(1), 0) }
	j, err := Open(path, "run", Meta{}, Options{MaxBytes: 400, Log: log.log(), now: clock})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		j.Put(numbered(i))
		await(t, "the row", func() bool { return j.Written() >= uint64(i+2) })
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	inOrder(t, rowsIn(t, path), 5)
	if b, _ := os.ReadFile(nextName(path)); string(b) != "important" {
		t.Errorf("the next file is now %q", b)
	}
	if got := log.text(); strings.Count(got, "journal file cannot be ended") != 1 || !strings.Contains(got, nextName(path)) {
		t.Errorf("the log says %s", got)
	}
}

// A journal that is no regular file is told by its name too.
func TestDeviceIsNamed(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	var log diary
	j, err := Open("/dev/full", "run", Meta{}, Options{Log: log.log(), backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a failure", func() bool { return log.text() != "" })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = j.Close(ended) // what waits cannot be written
	if got := log.text(); !strings.Contains(got, "path=/dev/full") {
		t.Errorf("it says %s", got)
	}
}

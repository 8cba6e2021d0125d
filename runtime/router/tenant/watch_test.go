package tenant

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// watched is a watcher of a file that a test writes.
type watched struct {
	t *testing.T
	Watcher
	mu    sync.Mutex
	count int
	told  []error
}

func watch(t *testing.T) *watched {
	w := &watched{t: t}
	w.Path, w.Interval, w.Set = filepath.Join(t.TempDir(), "tenants.json"), time.Second, NewSet(nil)
	w.Apply = func(*Table) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count++
	}
	w.Failed = func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, err)
	}
	return w
}

func (w *watched) applied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

func (w *watched) failed() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

func (w *watched) write(text string) {
	w.t.Helper()
	if err := atomicfile.Write(w.Path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func one(name string) string {
	return file(`{"name":"`+name+`","keys":["`+KeyDigest(name+"-key")+`"]}`, "null")
}

func (w *watched) knows(name string) bool {
	_, err := w.Set.Find("", name+"-key")
	return err == nil
}

func TestReload(t *testing.T) {
	w := watch(t)
	if _, err := w.Reload(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	w.write(one("a"))
	if changed, err := w.Reload(); !changed || err != nil || !w.knows("a") || w.knows("b") {
		t.Fatal(changed, err)
	}
	if changed, err := w.Reload(); changed || err != nil || w.applied() != 1 {
		t.Fatal(changed, err, w.applied())
	}
	w.write(one("b") + "x")
	var f *FileError
	if changed, err := w.Reload(); changed || !errors.As(err, &f) || !w.knows("a") {
		t.Fatal(changed, err)
	}
	w.write(one("b"))
	if changed, err := w.Reload(); !changed || err != nil || !w.knows("b") || w.knows("a") || w.applied() != 2 {
		t.Fatal(changed, err)
	}
	if w.failed() != nil {
		t.Errorf("Reload reported through Failed: %v", w.failed())
	}
}

func TestApplyComesBeforeTheTableIsInForce(t *testing.T) {
	w := watch(t)
	w.Apply = func(tab *Table) {
		if x, err := tab.Find("", "a-key"); err != nil || w.Set.Table() == tab {
			t.Error(x, err)
		}
	}
	w.write(one("a"))
	if _, err := w.Reload(); err != nil || !w.knows("a") {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		w.write(one("a"))
		if _, err := w.Reload(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.Run(ctx); close(ended) }()
		pass := func() { time.Sleep(w.Interval); synctest.Wait() }
		pass()
		if w.applied() != 1 {
			t.Fatal("a file that stands still was applied again")
		}
		w.write(one("b"))
		if pass(); !w.knows("b") {
			t.Fatal("the change was not seen")
		}
		w.write("{")
		pass()
		pass()
		if len(w.failed()) != 1 || !w.knows("b") {
			t.Fatalf("told %v", w.failed())
		}
		if err := os.Remove(w.Path); err != nil {
			t.Fatal(err)
		}
		pass()
		pass()
		if len(w.failed()) != 2 || !errors.Is(w.failed()[1], fs.ErrNotExist) || !w.knows("b") {
			t.Fatalf("told %v", w.failed())
		}
		w.write(one("b"))
		pass()
		w.write("{")
		pass()
		if len(w.failed()) != 3 || w.applied() != 2 {
			t.Fatalf("told %v, applied %d", w.failed(), w.applied())
		}
		cancel()
		<-ended
	})
}

// Two writes within one tick of the file system's clock leave the same stamp, and a writer may set
// the time of the last write back.
func TestChangeWithTheSameStampIsSeen(t *testing.T) {
	w := watch(t)
	w.write(one("a"))
	if _, err := w.Reload(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(w.Path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		name string
		at   time.Time
		seen bool
	}{{"b", now, true}, {"c", now.Add(-time.Hour), true}, {"d", now.Add(-time.Hour), goruntime.GOOS == "linux"}} {
		if err := os.WriteFile(w.Path, []byte(one(c.name)), info.Mode()); err != nil { // keeps the inode
			t.Fatal(err)
		}
		if err := os.Chtimes(w.Path, c.at, c.at); err != nil {
			t.Fatal(err)
		}
		if changed, err := w.look(false); err != nil || changed != c.seen {
			t.Errorf("%s: %v %v", c.name, changed, err)
		}
	}
}

// What is no regular file is refused at once, also a pipe that nobody writes.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	w := watch(t)
	if err := syscall.Mkfifo(w.Path, 0o600); err != nil {
		t.Skip("no pipes: ", err)
	}
	if _, err := w.Reload(); err == nil {
		t.Error("a pipe was read")
	}
	w.Path = t.TempDir()
	if _, err := w.Reload(); err == nil {
		t.Error("a folder was read")
	}
}

func TestRunWithoutIntervalEnds(t *testing.T) {
	w := watch(t)
	w.Interval = 0
	w.Run(t.Context())
}

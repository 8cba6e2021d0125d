package journal

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// faulty is a file that takes room bytes, then fails in the middle of a line, until it is
// given more.
type faulty struct {
	mu     sync.Mutex
	b      []byte
	room   int
	uncut  bool          // Truncate fails too
	failed chan struct{} // has a value after each failed write
	syncs  int
}

func (f *faulty) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(p), f.room)
	f.b, f.room = append(f.b, p[:n]...), f.room-n
	if n == len(p) {
		return n, nil
	}
	select {
	case f.failed <- struct{}{}:
	default:
	}
	return n, syscall.ENOSPC
}

func (f *faulty) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uncut {
		return syscall.EIO
	}
	f.room += len(f.b) - int(size)
	f.b = f.b[:size]
	return nil
}

func (f *faulty) Sync() error  { f.syncs++; return nil }
func (f *faulty) Close() error { return nil }

func (f *faulty) grow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room += n
}

func (f *faulty) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.b)
}

func numbered(i int) Row {
	return Row{RID: fmt.Sprintf("r%06d", i), Terminal: Completed, Failures: []Attempt{}, CachedTokens: map[string]int{}}
}

// inOrder checks that rows 0 … n−1 are there once each, in order.
func inOrder(t *testing.T, rows []Row, n int) {
	t.Helper()
	if len(rows) != n {
		t.Fatalf("%d rows, want %d", len(rows), n)
	}
	for i, r := range rows {
		if r.RID != numbered(i).RID {
			t.Fatalf("row %d is %s", i, r.RID)
		}
	}
}

func TestAFullDiskLosesNothingThatIsQueued(t *testing.T) {
	for _, uncut := range []bool{false, true} {
		t.Run(fmt.Sprintf("uncut=%v", uncut), func(t *testing.T) {
			f := &faulty{room: 2500, uncut: uncut, failed: make(chan struct{}, 1)}
			j := New(f, "run", Meta{}, Options{backoff: time.Millisecond, Clock: func() float64 { return 4.5 }})
			for i := range 50 {
				if !j.Put(numbered(i)) {
					t.Fatal("lost")
				}
			}
			for !j.Health().Failing {
				<-f.failed // it tries again and again
			}
			if h := j.Health(); !h.Failing || h.Queued == 0 || h.Errors == 0 || !strings.Contains(h.Error, "no space") {
				t.Errorf("%+v", h)
			}
			if text := f.text(); !uncut && !strings.HasSuffix(text, "\n") {
				t.Errorf("a torn line stays: %q", text[max(0, len(text)-40):])
			}
			f.grow(1 << 20)
			if err := j.Close(limited(t)); err != nil {
				t.Fatal(err)
			}
			rows, st, err := ReadRows(strings.NewReader(f.text()))
			if err != nil || st.Torn || !uncut && st.Bad > 0 {
				t.Fatalf("%+v, %v", st, err)
			}
			inOrder(t, rows, 50)
			if h := j.Health(); h.Failing || h.Dropped != 0 || h.Queued != 0 || h.Held != 0 {
				t.Errorf("%+v", h)
			}
			if !strings.Contains(f.text(), `"event":"journal_recovered","at":4.5,"at_unix":`) || f.syncs == 0 {
				t.Error("the journal does not tell of its failure, or was not synced")
			}
		})
	}
}

func TestLosslessWaits(t *testing.T) {
	f := &faulty{room: 1500, failed: make(chan struct{}, 1)}
	j := New(f, "run", Meta{}, Options{Rows: 4, Lossless: true, backoff: time.Millisecond})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if !j.PutWait(limited(t), numbered(i)) {
				t.Error("lost")
			}
		})
	}
	<-f.failed
	// A caller that may not wait, an event, and one whose time is over.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for j.Health().Queued < 4 {
		<-f.failed
	}
	if j.Put(numbered(99)) || j.PutWait(over, numbered(99)) {
		t.Error("a full queue took a row")
	}
	if !j.Event(Event{Name: "engine_ejected"}) {
		t.Error("an event was lost that has room of its own")
	}
	f.grow(1 << 20)
	wg.Wait()
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, _, err := ReadRows(strings.NewReader(f.text()))
	if err != nil || len(rows) != 40 || j.Dropped() != 2 {
		t.Errorf("%d rows, %d dropped, %v", len(rows), j.Dropped(), err)
	}
}

func TestBytesBoundTheQueue(t *testing.T) {
	f := &faulty{failed: make(chan struct{}, 1)}
	j := New(f, "run", Meta{}, Options{Bytes: 10_000, backoff: time.Millisecond})
	r := numbered(0)
	r.Decision = []byte(`"` + strings.Repeat("x", 3000) + `"`)
	took := 0
	for range 10 {
		if j.Put(r) {
			took++
		}
	}
	if took < 2 || took > 3 {
		t.Errorf("took %d", took)
	}
	f.grow(1 << 20)
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestWhatCannotBeEncodedIsToldOf(t *testing.T) {
	f := &faulty{room: 1 << 20, failed: make(chan struct{}, 1)}
	j := New(f, "run", Meta{}, Options{})
	bad := numbered(0)
	bad.Decision = []byte(`{`)
	j.Put(bad)
	j.Put(numbered(1))
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.text(), `"cause":"not_encodable","rows":1`) || j.Dropped() != 1 || j.Health().Queued != 0 {
		t.Errorf("%+v\n%s", j.Health(), f.text())
	}
}

// await polls a condition that the writer's goroutine brings about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}

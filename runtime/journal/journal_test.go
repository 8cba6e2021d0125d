package journal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestRowsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	reason := model.ReasonQueue
	want := Row{RID: "a", Arrived: 1.5, AtUnix: 7, InputLen: 3, Terminal: Refused, Refused: true, RefusedCause: "queue", Reason: &reason, Failures: []Attempt{}, CachedTokens: map[string]int{}}
	for run := range 2 {
		j, err := Open(path, "run", Meta{Package: "narwhal"})
		if err != nil {
			t.Fatal(err)
		}
		if !j.Put(want) || !j.Event(Event{Name: "engine_ejected", At: 3, Fields: map[string]any{"iid": "e", "run": "forged"}}) {
			t.Fatal("not queued")
		}
		if err := j.Close(limited(t)); err != nil {
			t.Fatal(err)
		}
		if j.Written() != 3 || j.Dropped() != 0 || j.Put(want) {
			t.Fatalf("run %d: written %d, dropped %d", run, j.Written(), j.Dropped())
		}
		tear(t, path)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	metas, events := 0, 0
	var rows []Row
	st, err := Read(f, func(l Line) error {
		switch {
		case l.Meta != nil:
			metas++
		case l.Row != nil:
			rows = append(rows, *l.Row)
		case l.Event.Name == "engine_ejected" && l.Event.At == 3 && l.Event.Fields["iid"] == "e":
			events++
		}
		return nil
	})
	if err != nil || metas != 2 || events != 2 || len(rows) != 2 || st.Bad != 0 || !st.Torn {
		t.Fatalf("metas %d, events %d, rows %d, %+v, %v", metas, events, len(rows), st, err)
	}
	want.Head = Head{Schema, Version, "run"}
	if diff := cmp.Diff(want, rows[0]); diff != "" {
		t.Error(diff)
	}
}

// tear appends an unfinished line, as a killed process leaves one.
func tear(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"schema":"narwhal.jour`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// blocked is a disk that does not answer until it is released.
type blocked struct {
	bytes.Buffer
	wait    chan struct{}
	entered chan struct{}
	once    sync.Once
}

func (b *blocked) Write(p []byte) (int, error) {
	b.once.Do(func() { close(b.entered) })
	<-b.wait
	return b.Buffer.Write(p)
}
func (b *blocked) Close() error { return nil }

func TestAFullQueueDropsAndSaysSo(t *testing.T) {
	disk := &blocked{wait: make(chan struct{}), entered: make(chan struct{})}
	j := New(disk, "run", Meta{}, Options{Rows: 2})
	if !j.Put(Row{RID: "first", Terminal: Completed}) {
		t.Fatal("first row lost")
	}
	<-disk.entered
	took := 0
	for range 10 {
		if j.Put(Row{RID: "x", Terminal: Completed}) {
			took++
		}
	}
	if h := j.Health(); took != 1 || h.Dropped != 9 || h.Queued != 2 || h.HighWater != 2 {
		t.Fatalf("took %d, %+v", took, h)
	}
	close(disk.wait)
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, _, err := ReadRows(strings.NewReader(disk.String()))
	if err != nil || len(rows) != 2 || !strings.Contains(disk.String(), `"journal_dropped"`) || !strings.Contains(disk.String(), `"rows":9`) {
		t.Errorf("%d rows, %v in\n%s", len(rows), err, disk.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
func (broken) Close() error              { return nil }

func TestAWriteErrorIsReported(t *testing.T) {
	j := New(broken{}, "run", Meta{})
	j.Put(Row{Terminal: Completed})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := j.Close(ctx); err == nil || !strings.Contains(err.Error(), "disk full") || !strings.Contains(err.Error(), "1 lines are lost") {
		t.Errorf("close: %v", err)
	}
}

func TestReadsTheReferencesJournal(t *testing.T) {
	b, err := os.ReadFile("testdata/reference-journal.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	st, err := Read(bytes.NewReader(b), func(l Line) error {
		switch {
		case l.Row != nil:
			counts[l.Row.Terminal]++
		case l.Event != nil:
			counts[l.Event.Name]++
		default:
			counts["meta"]++
		}
		return nil
	})
	if err != nil || st.Bad != 0 || st.Torn || counts["meta"] != 1 || counts[Completed] == 0 || counts[Failed] == 0 || counts["controller_decision"] == 0 {
		t.Errorf("%v %+v %v", counts, st, err)
	}
}

func TestReadRefusesAnotherVersion(t *testing.T) {
	_, err := Read(strings.NewReader(`{"schema":"narwhal.journal","schema_version":9,"terminal":"completed"}`+"\n"), func(Line) error { return nil })
	if !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

func TestLongLinesAreSkipped(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", maxLine) + "\"}\n"
	rows, st, err := ReadRows(io.MultiReader(strings.NewReader(long), strings.NewReader(`{"schema":"narwhal.journal","schema_version":1,"terminal":"completed","rid":"r"}`)))
	if err != nil || len(rows) != 1 || st.Bad != 1 {
		t.Errorf("%d rows, %+v, %v", len(rows), st, err)
	}
}

func FuzzRead(f *testing.F) {
	b, err := os.ReadFile("testdata/reference-journal.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range bytes.SplitAfter(b, []byte("\n"))[:12] {
		f.Add(line)
	}
	f.Add([]byte("{\"event\":\"x\",\"schema\":\"narwhal.journal\",\"schema_version\":1}\n{\"te"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		st, err := Read(bytes.NewReader(b), func(Line) error { n++; return nil })
		if err == nil && n+st.Bad > st.Lines {
			t.Fatalf("%d lines given, %+v", n, st)
		}
	})
}

package journal

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func rowsAt(t *testing.T, path string) ([]Row, []Meta, Stats) {
	t.Helper()
	var rows []Row
	var metas []Meta
	st, err := ReadPath(path, func(l Line) error {
		switch {
		case l.Row != nil:
			rows = append(rows, *l.Row)
		case l.Meta != nil:
			metas = append(metas, *l.Meta)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, metas, st
}

func TestFilesEndBySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	j, err := Open(path, "run", Meta{}, Options{MaxBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r := numbered(w*each + i)
				if !j.Put(r) {
					t.Error("lost")
				}
				if i%20 == 0 {
					await(t, "an empty queue", func() bool { return j.Health().Queued == 0 })
				}
			}
		})
	}
	wg.Wait()
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, metas, st := rowsAt(t, path)
	files, err := Files(path)
	if err != nil || len(files) < 5 || files[len(files)-1] != path {
		t.Fatalf("%v, %v", files, err)
	}
	h := j.Health()
	if len(rows) != writers*each || st.Bad > 0 || len(metas) != len(files) || h.Rotations != uint64(len(files)-1) {
		t.Fatalf("%d rows, %d metas, %d files, %+v, %+v", len(rows), len(metas), len(files), st, h)
	}
	last := map[string]int{}
	for _, r := range rows {
		n, _ := strconv.Atoi(r.RID[1:])
		w := strconv.Itoa(n / each)
		if prev, ok := last[w]; ok && n != prev+1 {
			t.Fatalf("after %d comes %d", prev, n)
		}
		last[w] = n
	}
	for i, m := range metas[1:] {
		if m.Part != i+2 {
			t.Errorf("file %d says part %d", i+2, m.Part)
		}
	}
}

func TestFilesEndByAgeAndTheOldestGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	j, err := Open(path, "run", Meta{}, Options{MaxAge: time.Hour, Keep: 2, now: clock})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the meta line", func() bool { return j.Written() == 1 })
	for i := range 5 {
		mu.Lock()
		now = now.Add(2 * time.Hour)
		if i == 3 {
			now = now.Add(-9 * time.Hour) // the wall clock goes back
		}
		mu.Unlock()
		j.Put(numbered(i))
		await(t, "row "+strconv.Itoa(i), func() bool { return j.Health().Queued == 0 })
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, _, _ := rowsAt(t, path)
	files, err := Files(path)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, r := range rows[1:] {
		if r.RID <= rows[i].RID {
			t.Errorf("order %v", rows)
		}
	}
	if rows[len(rows)-1].RID != numbered(4).RID {
		t.Errorf("the newest row is %s", rows[len(rows)-1].RID)
	}
}

func TestARotatedJournalStaysHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	j, err := Open(path, "run", Meta{}, Options{MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		j.Put(numbered(i))
		await(t, "the row", func() bool { return j.Health().Queued == 0 })
		if _, err := Take(path); err == nil {
			t.Fatal("a second writer after a rotation")
		}
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, _, _ := rowsAt(t, path)
	inOrder(t, rows, 20)
}

func TestARotationThatFailsCostsNoRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	if err := os.MkdirAll(filepath.Join(path+".next", "in-the-way"), 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := Open(path, "run", Meta{}, Options{MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		j.Put(numbered(i))
		await(t, "the row", func() bool { return j.Health().Queued == 0 })
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	rows, _, _ := rowsAt(t, path)
	inOrder(t, rows, 3)
	if h := j.Health(); h.Errors == 0 || h.Rotations != 0 {
		t.Errorf("%+v", h)
	}
}

func TestStartMendsTheLastLine(t *testing.T) {
	const meta = `{"meta":{"schema":"narwhal.journal","schema_version":1}}`
	for name, c := range map[string]struct {
		before string
		lines  int
	}{
		"empty": {"", 1}, "whole": {meta + "\n", 2}, "no end": {meta, 2}, "torn": {meta + "\n" + `{"schema":"narwhal.jou`, 2},
		"only a torn line": {`{"meta":{"sch`, 1}, "long torn line": {meta + "\n" + strings.Repeat("x", 100_000), 2},
	} {
		path := filepath.Join(t.TempDir(), "j.jsonl")
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(path, "run", Meta{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := j.Close(limited(t)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, metas, st := rowsAt(t, path)
		if len(metas) != c.lines || st.Bad > 0 || st.Torn {
			t.Errorf("%s: %d metas, %+v", name, len(metas), st)
		}
	}
}

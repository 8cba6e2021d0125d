package serve

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestWindows splits a journal over its files at the marks.
func TestWindows(t *testing.T) {
	client, router := rows("t-1", 2)
	later, router2 := rows("t-2", 2)
	nameless := router[0]
	nameless.ClientRID, nameless.RID = nil, "x"
	early, first := journalOf(t, nameless), journalOf(t, router[0])
	ended := "journal-20260101T000001.000000Z.jsonl"
	mark := func(inode uint64, bytes int) Mark { return Mark{Device: 1, Inode: inode, Bytes: int64(bytes)} }
	for name, c := range map[string]struct {
		ended, now []byte
		begins     [2]Mark
		others     [2]int
		trouble    [2]string
		bad        int
		rows       int
	}{
		"one file": {now: slices.Concat(early, first, journalOf(t, router[1], nameless), journalOf(t, router2...)), rows: 4,
			begins: [2]Mark{mark(1, len(early)), mark(1, len(early)+len(first))}, others: [2]int{0, 1}},
		"a mark within a line": {now: slices.Concat(early, first, journalOf(t, router[1]), journalOf(t, router2...)), rows: 4,
			begins: [2]Mark{mark(1, len(early)+7), mark(1, len(early)+len(first))}},
		"a file that ended between": {ended: slices.Concat(early, first), now: slices.Concat(journalOf(t, router[1], nameless), journalOf(t, append(router2, nameless)...)), rows: 4,
			begins: [2]Mark{mark(100, len(early)), mark(1, len(journalOf(t, router[1], nameless)))}, others: [2]int{1, 1}},
		"replaced":        {now: slices.Concat(first, journalOf(t, router2...)), rows: 2, begins: [2]Mark{mark(9, 10), mark(1, len(first))}, trouble: [2]string{"replaced", ""}},
		"truncated":       {now: journalOf(t, router2...), rows: 2, begins: [2]Mark{mark(1, 1<<40), mark(1, 0)}, trouble: [2]string{"truncated", ""}},
		"a line of noise": {now: slices.Concat(first, journalOf(t, router[1]), []byte("{oops\n"), journalOf(t, router2...)), rows: 4, begins: [2]Mark{mark(1, 0), mark(1, len(first))}, bad: 1},
	} {
		trial := Trial{Points: []Point{{Tag: "t-1", Rows: client, Begin: c.begins[0]}, {Tag: "t-2", Rows: later, Begin: c.begins[1]}}}
		e := newEnv(t, testFleet(), map[record.Key]any{trialKey: trial})
		e.file = func() ([]byte, error) { return c.now, nil }
		if c.ended != nil {
			e.ended = map[string][]byte{ended: c.ended}
		}
		s, err := newSource(limited(t), e, trial)
		if err != nil {
			t.Fatal(err)
		}
		j, torn, err := s.read(limited(t))
		if err != nil || torn || len(j.Rows) != c.rows || len(j.Windows) != 2 {
			t.Errorf("%s: %d rows, torn %v, %v", name, len(j.Rows), torn, err)
			continue
		}
		for i, w := range j.Windows {
			if len(w.Others) != c.others[i] || w.Trouble != c.trouble[i] {
				t.Errorf("%s: window %d: %+v", name, i, w)
			}
		}
		if got := j.Windows[0].Bad + j.Windows[1].Bad; got != c.bad {
			t.Errorf("%s: %d bad lines", name, got)
		}
	}
}

// TestRests reads digests and processes below a root, and nothing else.
func TestRests(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := trialRests(t.Context(), RestsRequest{Root: root, Files: []string{"a", "b"}, Procs: []string{"engine-e0"}})
	if err != nil || len(got.Values["file/a"]) != 64 || got.Values["file/b"] != gates.Gone || got.Values["proc/engine-e0"] != gates.Gone {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := trialRests(t.Context(), RestsRequest{Root: root, Files: []string{"../etc/passwd"}}); err == nil {
		t.Error("a file outside the root was read")
	}
}

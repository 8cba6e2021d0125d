package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// fleetOf answers as scripted and takes time by the test's clock.
type fleetOf struct {
	now      time.Time
	resident map[string]int
	silent   error
	handoff  func(Pair) ([]record.Finding, error)
	attest   func(string) ([]record.Finding, error)
	pairs    []string
	engines  []string
	takes    time.Duration
}

func (f *fleetOf) Resident(context.Context) (map[string]int, error) { return f.resident, f.silent }

func (f *fleetOf) Handoff(_ context.Context, p Pair) ([]record.Finding, error) {
	f.now, f.pairs = f.now.Add(f.takes), append(f.pairs, p.String())
	if f.handoff == nil {
		return nil, nil
	}
	return f.handoff(p)
}

func (f *fleetOf) Attest(_ context.Context, iid string) ([]record.Finding, error) {
	f.engines = append(f.engines, iid)
	if f.attest == nil {
		return nil, nil
	}
	return f.attest(iid)
}

func watchOf(t *testing.T, f *fleetOf) *Watch {
	t.Helper()
	dir := t.TempDir()
	f.now, f.takes = time.Unix(1e9, 0).UTC(), time.Second
	return &Watch{Engines: []string{"a", "b", "c"}, Probes: f, Budget: Budget{Percent: 10, Saved: time.Hour}, Book: filepath.Join(dir, "book.json"), Journal: filepath.Join(dir, "j.jsonl"), Now: func() time.Time { return f.now }}
}

// rounds runs a watch anew for each round, an interval apart.
func rounds(t *testing.T, w *Watch, f *fleetOf, n int, every time.Duration) (out []Round) {
	t.Helper()
	for range n {
		if err := w.Run(t.Context(), "run-1", 1, 0, func(r Round) { out = append(out, r) }); err != nil {
			t.Fatal(err)
		}
		f.now = f.now.Add(every)
	}
	return out
}

func found(rs []Round) (out []string) {
	for _, r := range rs {
		for _, f := range r.Findings {
			if f.Message == "" || f.Hint == "" {
				return []string{"says too little: " + f.Code}
			}
			out = append(out, f.Code)
		}
	}
	return out
}

func idle() map[string]int { return map[string]int{"a": 0, "b": 0, "c": 0} }

// TestRotationOutlivesTheCommand: each round is another process, and all have their turn.
func TestRotationOutlivesTheCommand(t *testing.T) {
	f := &fleetOf{resident: idle()}
	w := watchOf(t, f)
	rs := rounds(t, w, f, 7, time.Minute)
	if want := "a/b b/c c/a a/c b/a c/b a/b"; strings.Join(f.pairs, " ") != want || len(f.engines) == 0 {
		t.Errorf("handed over %v, asked %v, want %s", f.pairs, f.engines, want)
	}
	for _, e := range w.Engines {
		if !slices.Contains(f.engines, e) {
			t.Errorf("%s was not asked: %v", e, f.engines)
		}
	}
	b, err := os.ReadFile(w.Journal)
	if err != nil || bytes.Count(b, []byte("\n")) != 7 || rs[6].Round != 7 {
		t.Errorf("%d rounds, %v: %s", rs[6].Round, err, b)
	}
	var line Round
	if err := json.Unmarshal(b[:bytes.IndexByte(b, '\n')], &line); err != nil || line.Schema != Schema || line.PairMS != 1000 || !line.Looked() {
		t.Errorf("%+v, %v", line, err)
	}
}

// TestBusyAndSpentEnginesRest.
func TestBusyAndSpentEnginesRest(t *testing.T) {
	f := &fleetOf{resident: map[string]int{"a": 0, "b": 2}} // nothing is known of c
	w := watchOf(t, f)
	rs := rounds(t, w, f, 1, time.Second)
	if rs[0].Pair != nil || rs[0].Engine != "a" || strings.Join(rs[0].Busy, "") != "bc" {
		t.Errorf("%+v", rs[0])
	}
	f.resident = idle()
	rs = rounds(t, w, f, 2, time.Second)
	if rs[0].Pair.String() != "a/b" || rs[1].Pair != nil || strings.Join(rs[1].Spent, "") != "ab" || rs[1].Engine != "c" {
		t.Errorf("%+v", rs)
	}
	f.now = f.now.Add(time.Hour)
	if rs = rounds(t, w, f, 1, 0); rs[0].Pair == nil {
		t.Errorf("the budget does not come back: %+v", rs[0])
	}
	w.Budget.Percent = 0
	if rs = rounds(t, w, f, 1, 0); rs[0].Looked() {
		t.Errorf("looked without a budget: %+v", rs[0])
	}
}

func TestWatchFinds(t *testing.T) {
	for name, c := range map[string]struct {
		fleet fleetOf
		every time.Duration
		want  []string // of two rounds
	}{
		"all is well":          {fleet: fleetOf{resident: idle()}},
		"the router is silent": {fleet: fleetOf{silent: errors.New("refused\x1b[2J")}, want: []string{"watch-router-silent", "watch-router-silent"}},
		"a handoff fails":      {fleet: fleetOf{resident: idle(), handoff: func(Pair) ([]record.Finding, error) { return nil, errors.New("status 500") }}, every: time.Minute, want: []string{"watch-handoff-failed", "watch-handoff-failed"}},
		"a sidecar is silent":  {fleet: fleetOf{resident: idle(), attest: func(string) ([]record.Finding, error) { return nil, errors.New("503") }}, every: time.Minute, want: []string{"watch-unattested", "watch-unattested"}},
		"other tokens": {fleet: fleetOf{resident: idle(), handoff: func(Pair) ([]record.Finding, error) {
			return []record.Finding{{Code: "handoff-output", Message: "m", Hint: "h"}}, nil
		}}, want: []string{"handoff-output"}},
		"nobody is ever idle":   {fleet: fleetOf{resident: map[string]int{"a": 1, "b": 1, "c": 1}}, every: 2 * time.Hour, want: []string{"watch-overdue", "watch-overdue"}},
		"nothing could be held": {fleet: fleetOf{resident: idle(), handoff: func(Pair) ([]record.Finding, error) { return nil, errors.New("no") }}, want: []string{"watch-handoff-failed"}},
	} {
		f := c.fleet
		w := watchOf(t, &f)
		w.Overdue = time.Hour
		rs := rounds(t, w, &f, 2, c.every)
		if got := found(rs); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

// TestWatchKeepsWhatItCannotRead, and forgets what the fleet has no more.
func TestWatchKeepsWhatItCannotRead(t *testing.T) {
	f := &fleetOf{resident: idle()}
	w := watchOf(t, f)
	rounds(t, w, f, 4, time.Minute)
	w.Engines = []string{"a", "b"}
	rounds(t, w, f, 1, 0)
	book, err := Open(w.Book, "run-1", f.now)
	if err != nil || len(book.Engines) != 2 || len(book.Pairs) > 2 || len(book.Purses) != 2 {
		t.Errorf("%+v, %v", book, err)
	}
	for _, text := range []string{"", "{", `{"schema":"other"}`, `{"schema":"narwhal.watch","schema_version":1,"run":"run-2","pairs":{},"engines":{},"purses":{}}`, `{"schema":"narwhal.watch","schema_version":1,"run":"run-1","pairs":null}`} {
		if err := os.WriteFile(w.Book, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context(), "run-1", 1, 0, func(Round) {}); err == nil {
			t.Errorf("went on with %q", text)
		}
		if b, _ := os.ReadFile(w.Book); string(b) != text {
			t.Errorf("%q became %q", text, b)
		}
	}
}

// TestWatchEnds with its context: what was cut off had no turn.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleetOf{resident: idle(), handoff: func(Pair) ([]record.Finding, error) { cancel(); return nil, context.Canceled }}
	w := watchOf(t, f)
	var told []Round
	if err := w.Run(ctx, "run-1", 0, time.Hour, func(r Round) { told = append(told, r) }); err != nil || len(told) != 1 || told[0].Looked() {
		t.Errorf("%v, %+v", err, told)
	}
	if _, err := os.Stat(w.Book); err == nil {
		t.Error("a round that was cut off is remembered")
	}
}

func TestResidents(t *testing.T) {
	got, err := residents(200, []byte(`{"schema":"narwhal.state","resident":{"a":{"prefill":1,"decode":2},"b":{}}}`))
	if err != nil || got["a"] != 3 || got["b"] != 0 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []struct {
		status int
		body   string
	}{{503, `{"resident":{}}`}, {200, ``}, {200, `{}`}, {200, `{"resident":{"a":{"prefill":-1}}}`}, {200, `{"resident":{"a":"x"}}`}, {200, `[]`}} {
		if got, err := residents(bad.status, []byte(bad.body)); err == nil {
			t.Errorf("%s: %v", bad.body, got)
		}
	}
}

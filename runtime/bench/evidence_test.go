package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// lab is a server that answers like a router and keeps a journal of its own.
type lab struct {
	t       *testing.T
	url     string
	journal string
	mu      sync.Mutex
	n       int
	inside  int
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	l.append(`{"meta":{"schema":"narwhal.journal","schema_version":1,"params":{"ttft_s":2,"tpot_s":0.1}}}`)
	s := httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(s.Close)
	l.url = s.URL
	return l
}

func (l *lab) append(line string) {
	f, err := os.OpenFile(l.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	_ = f.Close()
}

func (l *lab) serve(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r.URL.Path {
	case "/metrics":
		fmt.Fprintf(w, "# HELP x\nnarwhal_offered_total %d\nnarwhal_served_total %d\nnarwhal_failed_total{reason=\"a\"} 0\nnarwhal_failed_total{reason=\"b\"} 0\nnarwhal_flips_total{to=\"decode\",by=\"x\"} 0\n", l.n, l.n)
	case "/narwhal/state":
		fmt.Fprintf(w, `{"schema":"narwhal.state","journal_run":"run-1","admission":{"inflight":%d}}`, l.inside)
	default:
		l.n++
		rid, out := fmt.Sprintf("r%d", l.n), 3
		var b struct {
			Max int `json:"max_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&b)
		out = b.Max
		w.Header().Set("X-Request-Id", rid)
		row := map[string]any{"schema": "narwhal.journal", "schema_version": 1, "run": "run-1", "rid": rid, "client_rid": r.Header.Get("X-Request-Id"), "terminal": journal.Completed, "status": 200, "output_len": out}
		line, _ := json.Marshal(row)
		l.append(string(line))
		for range out - 1 {
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":null}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", out)
	}
}

func (l *lab) conduct(change func(*Setup)) *Folder {
	l.t.Helper()
	s := Setup{Dir: filepath.Join(l.t.TempDir(), "run"), ID: NewID(time.Now()), URL: l.url, SLO: SLO{2, 0.1}, Seed: 1, Points: []Point{{Label: "one", Arrivals: every(12, time.Millisecond)}},
		Timeout: time.Minute, MaxInFlight: 100, CharsPerToken: 4, Warmup: 1, Idle: time.Second, Journal: l.journal, SampleEvery: time.Second, Config: map[string]int{"x": 1}}
	if change != nil {
		change(&s)
	}
	if err := Conduct(l.t.Context(), s); err != nil {
		l.t.Fatal(err)
	}
	return l.read(s.Dir)
}

func (l *lab) read(dir string) *Folder {
	l.t.Helper()
	f, err := ReadFolder(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	return f
}

func codesOf(f *Folder) []string {
	var out []string
	d, _ := f.Diagnose()
	for _, x := range d {
		if x.Hint == "" || x.Count < 1 {
			return []string{"a finding without a hint or a count: " + x.Code}
		}
		out = append(out, x.Code)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestRunAgreesWithItself(t *testing.T) {
	f := newLab(t).conduct(nil)
	if got := codesOf(f); len(got) != 0 {
		t.Errorf("%v", got)
	}
	r := f.Score()
	if r.State != StateComplete || r.Offered != 12 || r.Qualified != 12 || len(r.Unchecked) != 0 || r.Points[0].Planned != 12 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(pointDir(f.Dir, 0), filePartRows)); !os.IsNotExist(err) {
		t.Error("the rows of the running point stay")
	}
}

// Every diagnostic of the table is raised by what it is for, and named in the documents.
func TestEveryDiagnostic(t *testing.T) {
	l := newLab(t)
	input := filepath.Join(t.TempDir(), "fleet.json")
	if err := os.WriteFile(input, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := l.conduct(func(s *Setup) { s.Inputs = []string{input} })
	at := pointDir("", 0)
	edit := func(file string, change func(string) string) func(string) {
		return func(dir string) {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), []byte(change(string(b))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	swap := func(file, from, to string, n int) func(string) {
		return edit(filepath.Join(at, file), func(s string) string {
			if !strings.Contains(s, from) {
				t.Fatalf("%s has no %s", file, from)
			}
			return strings.Replace(s, from, to, n)
		})
	}
	lines := func(file string, change func([]string) []string) func(string) {
		return edit(filepath.Join(at, file), func(s string) string { return strings.Join(change(strings.SplitAfter(s, "\n")), "") })
	}
	tag := whole.Points[0].Info.Tag
	other := `{"schema":"narwhal.journal","schema_version":1,"run":"run-2","rid":"z","client_rid":"stranger","terminal":"completed"}` + "\n"
	moved := `{"schema":"narwhal.journal","schema_version":1,"run":"run-1","event":"role_moved","at":1}` + "\n"
	kept := true // damage goes unnoticed by itself
	for _, c := range []struct {
		code   string
		damage func(dir string)
		also   []string
	}{
		{"client_journal_count", lines(fileRows, func(s []string) []string { return s[1:] }), []string{"client_journal_ids", "completed_count"}},
		{"completed_count", swap(fileRows, `"completed":true`, `"completed":false`, 1), []string{"request_mismatch"}},
		{"client_journal_ids", swap(fileJournal, tag+"-3", tag+"-77", 1), nil},
		{"client_journal_ids", swap(fileJournal, tag+`-3"`, tag+`-4"`, 1), nil},
		{"counter_mismatch", lines(fileSamples, func(s []string) []string {
			s[len(s)-2] = strings.ReplaceAll(s[len(s)-2], `"narwhal_served_total":13`, `"narwhal_served_total":15`)
			return s
		}), nil},
		{"journal_client_ids_missing", swap(fileJournal, `"client_rid":"`+tag+`-3",`, ``, 1), []string{"client_journal_count", "client_journal_ids", "completed_count"}},
		{"missing_run_metrics", lines(fileJournal, func(s []string) []string { return append(s, other) }), nil},
		{"role_history_gap", lines(fileSamples, func(s []string) []string {
			s[len(s)-2] = strings.ReplaceAll(s[len(s)-2], `"narwhal_flips_total":0`, `"narwhal_flips_total":2`)
			return s
		}), nil},
		{"", func(dir string) {
			lines(fileSamples, func(s []string) []string {
				s[len(s)-2] = strings.ReplaceAll(s[len(s)-2], `"narwhal_flips_total":0`, `"narwhal_flips_total":1`)
				return s
			})(dir)
			lines(fileJournal, func(s []string) []string { return append(s, moved) })(dir)
		}, nil},
		{"scrape_error", lines(fileSamples, func(s []string) []string {
			return append(s[:1:1], append([]string{`{"at":"` + whole.Points[0].samples[0].At.Format(time.RFC3339Nano) + `","error":"late"}` + "\n"}, s[1:]...)...)
		}), nil},
		{"scrape_interval_gap", swap(filePoint, `"sample_every_s": 1`, `"sample_every_s": 0.000001`, 1), nil},
		{"counter_missing", lines(fileSamples, func(s []string) []string {
			s[len(s)-2] = strings.Replace(s[len(s)-2], `"narwhal_failed_total":0,`, ``, 1)
			return s
		}), nil},
		{"counter_reset", lines(fileSamples, func(s []string) []string {
			s[0] = strings.Replace(s[0], `"narwhal_failed_total":0,`, `"narwhal_failed_total":5,`, 1)
			return s
		}), []string{"counter_mismatch"}},
		{"input_changed", edit(fileRun, func(s string) string { return strings.Replace(s, `"sha256_after": "44`, `"sha256_after": "45`, 1) }), nil},
		{"journal_replaced", swap(filePoint, `"journal_error": ""`, `"journal_error": "replaced"`, 1), nil},
		{"journal_truncated", swap(filePoint, `"journal_error": ""`, `"journal_error": "truncated"`, 1), nil},
		{"journal_parse_error", lines(fileJournal, func(s []string) []string { return append(s, "{oops\n") }), nil},
		{"client_records_missing", func(dir string) { _ = os.Remove(filepath.Join(dir, at, fileRows)) }, nil},
		{"client_parse_error", lines(fileRows, func(s []string) []string { return append(s, "{oops\n") }), nil},
		{"client_parse_error", lines(fileRows, func(s []string) []string { return append(s, s[0]) }), nil},
		{"warmup_parse_error", edit(fileWarmup, func(s string) string { return s + "x\n" }), nil},
		{"request_mismatch", swap(fileJournal, `"output_len":5`, `"output_len":4`, 1), nil},
		{"evidence_changed", func(dir string) { kept = false; swap(fileSamples, `"at"`, ` "at"`, 1)(dir) }, nil},
		{"evidence_changed", func(dir string) { kept = false; _ = os.Remove(filepath.Join(dir, at, "before.state.json")) }, nil},
		{"not_idle", swap(filePoint, `"idle_after": true`, `"idle_after": false`, 1), nil},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(whole.Dir)); err != nil {
			t.Fatal(err)
		}
		kept = true
		if c.damage(dir); kept {
			reseal(t, dir)
		}
		want := c.also
		if c.code != "" {
			want = append([]string{c.code}, c.also...)
		}
		slices.Sort(want)
		if got := codesOf(l.read(dir)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.code, got, want)
		}
		raised[c.code] = true
	}
	for _, d := range Diagnostics() {
		if !raised[d.Code] || d.Means == "" || d.Do == "" {
			t.Errorf("%s is raised by nothing here, or not explained", d.Code)
		}
	}
	theirs := slices.DeleteFunc(Diagnostics(), func(d Diagnostic) bool { return d.Ours })
	if len(theirs) != 4+14 {
		t.Errorf("%d diagnostics of the contract", len(theirs))
	}
}

// reseal notes the evidence of a folder as it is.
func reseal(t *testing.T, dir string) {
	t.Helper()
	var m Manifest
	err := readJSON(filepath.Join(dir, fileRun), &m)
	if err == nil {
		m.Files, err = evidenceDigests(dir)
	}
	if err = errors.Join(err, writeJSON(filepath.Join(dir, fileRun), m)); err != nil {
		t.Fatal(err)
	}
}

var raised = map[string]bool{}

// What happens to a journal's file within a run: it ends and goes on, is replaced, is cut.
func TestJournalWindow(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   error
		lines  int
	}{
		{"nothing", func(string) error { return nil }, nil, 0},
		{"grows", func(p string) error { return appendTo(p, "c\n") }, nil, 1},
		{"rotated", func(p string) error {
			ended := strings.TrimSuffix(p, ".jsonl") + "-20260101T000000.000000Z.jsonl"
			if err := appendTo(p, "c\n"); err != nil {
				return err
			}
			if err := os.Rename(p, ended); err != nil {
				return err
			}
			return appendTo(p, "d\ne\n")
		}, nil, 3},
		{"replaced", func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return appendTo(p, "d\n")
		}, errReplaced, 0},
		{"cut", func(p string) error { return os.Truncate(p, 1) }, errTruncated, 0},
	} {
		path := filepath.Join(t.TempDir(), "j.jsonl")
		if err := appendTo(path, "a\nb\n"); err != nil {
			t.Fatal(err)
		}
		w, err := openWindow(path)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := c.change(path); err != nil {
			t.Fatal(err)
		}
		if err := w.copy(&b); err != c.want || strings.Count(b.String(), "\n") != c.lines || strings.Contains(b.String(), "a") {
			t.Errorf("%s: %v, %q", c.name, err, b.String())
		}
		_ = w.Close()
	}
	if _, err := openWindow(t.TempDir()); err == nil {
		t.Error("a folder is no journal")
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// A server that is no router is measured as well, and nothing is said to agree.
func TestRunWithoutARouter(t *testing.T) {
	l := newLab(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			http.NotFound(w, r)
			return
		}
		l.serve(w, r)
	}))
	defer s.Close()
	f := l.conduct(func(x *Setup) { x.URL, x.Journal = s.URL, "" })
	if r := f.Score(); r.Completed != 12 || len(r.Diagnostics) != 0 || len(r.Unchecked) != 2 {
		t.Errorf("%+v", r)
	}
}

// A run whose process is gone counts what was due by then and has no row.
func TestDiedRun(t *testing.T) {
	f := newLab(t).conduct(nil)
	at := pointDir(f.Dir, 0)
	for file, change := range map[string][2]string{filepath.Join(f.Dir, fileRun): {`"state": "complete"`, `"state": "running"`}, filepath.Join(at, filePoint): {`"state": "complete"`, `"state": "running"`}} {
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(b), change[0], change[1], 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := f.Points[0].Rows
	if err := os.Remove(filepath.Join(at, fileRows)); err != nil {
		t.Fatal(err)
	}
	if err := writeLines(filepath.Join(at, filePartRows), []Row{rows[6], rows[0], rows[5]}); err != nil {
		t.Fatal(err)
	}
	if err := appendTo(filepath.Join(at, filePartRows), `{"index":7,"cl`); err != nil { // cut off as it was written
		t.Fatal(err)
	}
	got, err := ReadFolder(f.Dir)
	if err != nil || got.State != StateDied {
		t.Fatalf("%v, %v", got, err)
	}
	r := got.Score()
	if r.State != StateDied || r.Completed != 3 || r.Offered < 7 || r.Points[0].Outcomes[OutcomeLost] != r.Offered-3 {
		t.Errorf("%+v", r)
	}
}

func TestReadFolderRefuses(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "no": "{}", "other": `{"schema":"narwhal.bench-run","schema_version":2}`, "text": "x"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileRun), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := ReadFolder(dir); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if _, err := ReadFolder(t.TempDir()); err == nil {
		t.Error("an empty folder is no run")
	}
}

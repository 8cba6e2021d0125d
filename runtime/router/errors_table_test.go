package router

import (
	flags "flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// unprovoked are rows that no test of this package brings about, and why.
var unprovoked = map[string]string{
	"engine_answer": "needs an engine that streams a tool call without id; assemble and answer have tests of their own",
	"internal":      "needs a defect of the router",
}

// tellings is what the router told clients in the whole run of the tests.
var tellings struct {
	sync.Mutex
	rows    map[string]bool
	unknown map[string]bool
}

func init() {
	tellings.rows, tellings.unknown = map[string]bool{}, map[string]bool{}
	answered = func(f *failure, late bool) {
		name := rowOf(f)
		if late {
			name = lateRowOf(f)
		}
		tellings.Lock()
		defer tellings.Unlock()
		if name == "" {
			tellings.unknown[fmt.Sprintf("late %v: %+v", late, *f)] = true
			return
		}
		tellings.rows[name] = true
	}
}

// rowOf is the row that a failure belongs to, "" for none.
func rowOf(f *failure) string {
	for _, r := range Errors() {
		if r.holds(f) {
			return r.Name
		}
	}
	return ""
}

func (r ErrorRow) holds(f *failure) bool {
	typ, code := r.Type, r.Code
	if typ == AnyPhase && slices.Contains([]string{phaseAdmission, phasePrefill, phaseDecode}, f.typ) {
		typ, code = f.typ, f.typ
	}
	if f.terminal == journal.Cancelled && f.status == 0 {
		return r.Status == 0 // nothing is told
	}
	if f.terminal != "" && (f.terminal != r.Terminal || f.reason != "" && !slices.Contains(r.Reasons, f.reason) || f.reason == "" && len(r.Reasons) > 0) {
		return false
	}
	return r.Status == f.status && typ == f.typ && code == wordOf(f.hasCode, f.code) && likeParam(r.Param, f) && like(r.Message, f.message) &&
		likeRetry(r.RetryAfter, f.retryAfter) && (r.engine || f.upstream == 0 || f.terminal != journal.Invalid) && (!r.engine || f.upstream > 0)
}

func wordOf(has bool, v *string) string {
	switch {
	case !has:
		return Absent
	case v == nil:
		return "null"
	}
	return *v
}

func likeParam(want string, f *failure) bool {
	got := wordOf(f.hasParam, f.param)
	if got != Absent && got != "null" {
		got = "member"
	}
	return want == got || want == "member or null" && got != Absent
}

// likeRetry compares a rule with a header's seconds; 0 = no header.
func likeRetry(rule string, got int) bool {
	switch rule {
	case "":
		return got == 0
	case "1":
		return got == 1
	}
	return got > 0 && got <= 3600 || got == 0 && strings.Contains(rule, "none")
}

// like compares a message with its form.
func like(form, s string) bool {
	parts := strings.Split(form, "…")
	rest, ok := strings.CutPrefix(s, parts[0])
	for i, p := range parts[1:] {
		if i == len(parts)-2 && p == "" {
			return ok
		}
		_, after, found := strings.Cut(rest, p)
		rest, ok = after, ok && found
	}
	return ok && rest == ""
}

func lateRowOf(f *failure) string {
	typ, code := f.phase, f.terminal
	if typ == "" {
		typ = phaseDecode
	}
	if code != journal.Expired {
		code = journal.Failed
	}
	for _, r := range LateErrors() {
		if r.Type == typ && r.Code == code && slices.Contains(r.Terminals, f.terminal) {
			return r.Name
		}
	}
	return ""
}

// judgeErrors fails the run of the tests when a client was told what no row says, or, after
// a whole run, when a row was never told.
func judgeErrors(code int) int {
	tellings.Lock()
	defer tellings.Unlock()
	for u := range tellings.unknown {
		code = 1
		fmt.Fprintln(os.Stderr, "no row of errors_table.go is:", u)
	}
	whole := flags.Lookup("test.run").Value.String() == "" && flags.Lookup("test.list").Value.String() == "" && !testing.Short() && code == 0
	for _, w := range judgeEvents(whole) {
		code = 1
		fmt.Fprintln(os.Stderr, w)
	}
	if !whole {
		return code
	}
	for _, name := range rowNames() {
		if why := unprovoked[name]; tellings.rows[name] == (why != "") {
			code = 1
			fmt.Fprintf(os.Stderr, "row %s of errors_table.go: provoked %v, listed as unprovoked %v\n", name, tellings.rows[name], why != "")
		}
	}
	return code
}

func rowNames() (names []string) {
	for _, r := range Errors() {
		names = append(names, r.Name)
	}
	for _, r := range LateErrors() {
		names = append(names, r.Name)
	}
	return names
}

// TestErrorRowsAreWellFormed checks names, and that the routes list every status.
func TestErrorRowsAreWellFormed(t *testing.T) {
	names := rowNames()
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] || n == "" {
			t.Errorf("row %q is repeated or has no name", n)
		}
		seen[n] = true
	}
	for n := range unprovoked {
		if !seen[n] {
			t.Errorf("no row %s", n)
		}
	}
	statuses := []int{200}
	for _, r := range Errors() {
		if r.Status > 0 && r.Status != 421 && r.Status != 403 && !slices.Contains(statuses, r.Status) {
			statuses = append(statuses, r.Status)
		}
	}
	slices.Sort(statuses)
	if !slices.Equal(statuses, completionStatuses) {
		t.Errorf("the rows have the statuses %v, the routes list %v", statuses, completionStatuses)
	}
}

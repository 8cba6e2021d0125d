package router

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	matrixPage = "../../docs/failure-matrix.md"
	pageBegin  = "<!-- rows: written by TestMatrixPage with NARWHAL_WRITE_PAGES=1 -->\n"
	pageEnd    = "<!-- end of rows -->\n"
)

// The page says what the table says.
func TestMatrixPage(t *testing.T) {
	raw, err := os.ReadFile(matrixPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), pageBegin)
	rows, after, end := strings.Cut(rest, pageEnd)
	if !ok || !end {
		t.Fatalf("%s has no place for the rows", matrixPage)
	}
	want := matrixTable()
	if rows == want {
		return
	}
	if os.Getenv("NARWHAL_WRITE_PAGES") == "" {
		t.Fatalf("%s differs from the table of the tests; run this test with NARWHAL_WRITE_PAGES=1", matrixPage)
	}
	if err := os.WriteFile(matrixPage, []byte(before+pageBegin+want+pageEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func matrixTable() string {
	var b strings.Builder
	b.WriteString("| Event | Provoked by | Client sees | Attempt failures | Breaker counts | Pinned for the lease | Alarm |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, m := range matrix {
		sees := cmp.Or(m.sees, "(has left)")
		if m.blind {
			sees += ", wrong text"
		}
		if m.retryAfter != "" {
			sees += ", retry-after " + m.retryAfter
		}
		how := m.how
		if m.form != "" {
			how += map[string]string{"stream": " (streamed)", "buffer": " (buffered)"}[m.form]
		}
		fmt.Fprintf(&b, "| %s | %s | %s → %s | %s | %s | %s | %s |\n", m.event, how, sees, m.terminal, m.failures, m.strikes, m.pinned, m.alarm)
	}
	for _, g := range matrixGates {
		fmt.Fprintf(&b, "| %s | %s | the router does not start: `%s` | | | | |\n", g.event, g.how, g.says)
	}
	for _, e := range contractEvents {
		if why := matrixNotes[e]; why != "" {
			fmt.Fprintf(&b, "| %s | not played: %s | | | | | |\n", e, why)
		}
	}
	return b.String()
}

package main

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// The page has a row for each diagnostic, word for word.
func TestBenchPage(t *testing.T) {
	page, last := readPage(t, "docs/bench.md"), 0
	for _, d := range bench.Diagnostics() {
		row := "\n| `" + d.Code + "` | " + strings.ToUpper(d.Means[:1]) + d.Means[1:] + " | " + strings.ToUpper(d.Do[:1]) + d.Do[1:] + " |\n"
		at := strings.Index(page, row)
		if at < last {
			t.Errorf("docs/bench.md lacks, or has out of order: %s", row)
		}
		last = max(last, at)
	}
	if got := len(rows(t, "docs/bench.md", "## Diagnostics")); got != len(bench.Diagnostics()) {
		t.Errorf("%d rows of diagnostics, %d in the table", got, len(bench.Diagnostics()))
	}
	for _, s := range []string{bench.AIPerfVersion, "summary version " + bench.AIPerfSchema, bench.Schema} {
		if !strings.Contains(page, s) {
			t.Errorf("docs/bench.md lacks %s", s)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// The page of the simulated engine has each failure that can be injected, and no other.
func TestSimulatedPage(t *testing.T) {
	page := readPage(t, "docs/simulated.md")
	kinds := map[string]bool{}
	for _, k := range simulated.Kinds() {
		kinds[k] = true
		if !strings.Contains(page, "\n| `"+k+"` |") {
			t.Errorf("docs/simulated.md lacks %s", k)
		}
	}
	for _, k := range rows(t, "docs/simulated.md", "## Failures on demand") {
		if !kinds[k] && !strings.Contains(k, "/simulated/") {
			t.Errorf("docs/simulated.md has %s, which is none", k)
		}
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// A gate or host that is not there is refused with the names that are.
func TestLogKnowsItsNames(t *testing.T) {
	var v readOnly
	v.fleet.Deploy = &fleet.Deploy{Hosts: map[string]fleet.Host{"alpha": {}}}
	v.snap = &record.Snapshot{Events: []record.Event{{Host: "gone", Body: json.RawMessage("{}")}}}
	for _, c := range []struct{ gate, host, hint string }{
		{"", "", ""}, {"a", "alpha", ""}, {"G", "gone", ""},
		{"nope", "", "A, B, C, D, E, F, G"}, {"H", "", "A, B"}, {"AB", "", "A, B"}, {"", "nope", "alpha, gone"},
	} {
		err := v.known(c.gate, c.host)
		if c.hint == "" && err != nil {
			t.Errorf("%q %q: %v", c.gate, c.host, err)
		}
		if c.hint != "" && (problem.StatusOf(err) != problem.Invalid || !strings.Contains(problem.All(err)[0].Hint, c.hint)) {
			t.Errorf("%q %q: got %v, want a hint of %s", c.gate, c.host, err, c.hint)
		}
	}
}

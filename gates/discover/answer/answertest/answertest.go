// Package answertest reads recorded answers of hosts' tools for the tests of their parsers.
//
// It promises lines as gate A gives them to a parser: printable, without space around them. It
// refuses a recording that is not there: the test fails.
package answertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
)

// Lines cuts an answer.
func Lines(s string) []string {
	var out []string
	for l := range strings.Lines(s) {
		out = append(out, strings.TrimSpace(answer.Printable(l)))
	}
	return out
}

// Recorded are the lines of a file in the package's testdata.
func Recorded(t testing.TB, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Lines(string(b))
}

package docgen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSections(t *testing.T) {
	got := Sections("p.md", "P", "Intro.", Section{Head: []string{"A", "B"}, Rows: [][]string{{"x | y", ""}}, After: "Done."}, Section{Title: "Empty", Before: "Nothing."})
	want := "# P\n\nIntro.\n\n| A | B |\n| --- | --- |\n| x \\| y | |\n\nDone.\n\n## Empty\n\nNothing.\n\n"
	if d := cmp.Diff(Page{"p.md", want}, got); d != "" {
		t.Error(d)
	}
}

package docgen

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func TestWriteThenCheck(t *testing.T) {
	dir := t.TempDir()
	pages := []Page{{"a.md", "# A"}, {"cli/b.md", "# B\n"}}
	hand := filepath.Join(dir, "hand.md")
	if err := os.WriteFile(hand, []byte("# by hand\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := Write(dir, pages)
	if err != nil || !slices.Equal(changed, []string{"a.md", "cli/b.md"}) {
		t.Fatalf("wrote %v, %v", changed, err)
	}
	if diffs, err := Check(dir, pages); err != nil || len(diffs) > 0 {
		t.Fatalf("after writing: %v, %v", diffs, err)
	}
	if changed, err := Write(dir, pages); err != nil || len(changed) > 0 {
		t.Fatalf("writing again changed %v, %v", changed, err)
	}
	if b, _ := os.ReadFile(hand); string(b) != "# by hand\n" {
		t.Errorf("a page that is not ours is now %q", b)
	}
}

func TestCheckNamesEveryDifference(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(dir, []Page{{"a.md", "A"}, {"old.md", "old"}}); err != nil {
		t.Fatal(err)
	}
	got, err := Check(dir, []Page{{"a.md", "A changed"}, {"new.md", "new"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Difference{{"a.md", "differs"}, {"new.md", "missing"}, {"old.md", "has no source"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := Write(dir, []Page{{"a.md", "A changed"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old.md")); !os.IsNotExist(err) {
		t.Errorf("a page without a source is still there: %v", err)
	}
}

func TestWriteRefusesAPageWrittenByHand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.md")
	if err := os.WriteFile(file, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, []Page{{"a.md", "theirs"}}); err == nil {
		t.Error("a page written by hand was replaced")
	}
	if b, _ := os.ReadFile(file); string(b) != "mine\n" {
		t.Errorf("the page is now %q", b)
	}
}

func TestCommands(t *testing.T) {
	tree := func() *cobra.Command {
		root := &cobra.Command{Use: "tool", Short: "A tool"}
		nothing := func(*cobra.Command, []string) {}
		gate := &cobra.Command{Use: "gate", Short: "Gates"}
		back := &cobra.Command{Use: "back --to GATE", Short: "Goes back", Run: nothing}
		back.Flags().String("to", "", "gate | letter")
		back.Flags().Bool("dry", false, "only look")
		_ = back.MarkFlagRequired("to")
		gate.AddCommand(back)
		root.AddCommand(gate, &cobra.Command{Use: "secret", Hidden: true, Run: nothing})
		return root
	}
	pages := Commands(tree())
	if d := cmp.Diff(pages, Commands(tree())); d != "" {
		t.Errorf("two runs differ: %s", d)
	}
	by := map[string]string{}
	for _, p := range pages {
		by[p.Path] = p.Text
	}
	if _, ok := by["cli/secret.md"]; ok || strings.Contains(by["cli/README.md"], "secret") {
		t.Error("a hidden command has a page")
	}
	for _, want := range []string{"## tool gate back", "tool gate back --to GATE [flags]", "--dry", "Required: `--to`."} {
		if !strings.Contains(by["cli/gate.md"], want) {
			t.Errorf("the page lacks %q:\n%s", want, by["cli/gate.md"])
		}
	}
}

func TestTables(t *testing.T) {
	exits := Exits([]problem.Code{{Exit: 143, Status: problem.Terminated, Meaning: "a | b"}})
	if !strings.Contains(exits.Text, "| 143 | `interrupted` | a \\| b |") {
		t.Error(exits.Text)
	}
	rules := Rules([]Rule{{"x", "note", "Says\nso."}})
	if !strings.Contains(rules.Text, "| `x` | note | Says so. |") {
		t.Error(rules.Text)
	}
	metrics := Metrics([]Metric{{"m", "gauge", []string{"a", "b"}, "It."}}, nil, []string{"One."})
	if !strings.Contains(metrics.Text, "| `m` | gauge | a, b | It. |") || !strings.Contains(metrics.Text, "\n- One.\n") {
		t.Error(metrics.Text)
	}
	vars := Environment([]Variable{{"V", "all", "it"}})
	if !strings.Contains(vars.Text, "| `V` | all | it |") {
		t.Error(vars.Text)
	}
}

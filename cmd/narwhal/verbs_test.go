package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// spoken is a command line inside prose: the verbs, and what follows up to a mark that ends
// it. prose are words behind the name of the project that are no verb.
var (
	spoken   = regexp.MustCompile("\\bnarwhal ([a-z][a-z-]*)((?: [^ ;,:`)\"\\n]+)*)")
	verbLike = regexp.MustCompile(`^[a-z]+$`)
	flagOf   = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)
	prose    = []string{"binary", "holds", "does", "or", "surfaces", "journal", "owns"}
)

// TestSpokenVerbs checks that each verb and flag that a text of the program names exists.
func TestSpokenVerbs(t *testing.T) {
	r := root(&app{out: io.Discard, err: io.Discard})
	r.InitDefaultCompletionCmd()
	r.InitDefaultHelpCmd()
	checked := 0
	for _, text := range texts(t) {
		for _, m := range spoken.FindAllStringSubmatch(text.value, -1) {
			if slices.Contains(prose, m[1]) {
				continue
			}
			checked++
			c, rest, err := r.Find(strings.Fields(m[1]))
			if err != nil || c == r || len(rest) > 0 {
				t.Errorf("%s: narwhal %s: no such verb, in %q", text.at, m[1], text.value)
				continue
			}
			checkSpoken(t, text.at, c, strings.Fields(m[2]))
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// checkSpoken follows a command line as far as it is verbs, and looks its flags up.
func checkSpoken(t *testing.T, at string, c *cobra.Command, words []string) {
	for _, w := range words {
		if sub := child(c, w); sub != nil {
			c = sub
			continue
		}
		if c.HasSubCommands() && verbLike.MatchString(w) {
			t.Errorf("%s: %s has no verb %s", at, c.CommandPath(), w)
			return
		}
		m := flagOf.FindStringSubmatch(w)
		if m == nil || !strings.HasPrefix(w, "--") {
			continue
		}
		if m[1] == "help" || c.Flags().Lookup(m[1]) != nil || c.InheritedFlags().Lookup(m[1]) != nil {
			continue
		}
		t.Errorf("%s: %s has no flag --%s", at, c.CommandPath(), m[1])
	}
}

func child(c *cobra.Command, name string) *cobra.Command {
	for _, s := range c.Commands() {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

type spokenText struct{ at, value string }

// texts are the string literals of the program.
func texts(t *testing.T) []spokenText {
	t.Helper()
	var out []spokenText
	set := token.NewFileSet()
	err := filepath.WalkDir(projectDir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if v, err := strconv.Unquote(lit.Value); err == nil {
					out = append(out, spokenText{set.Position(lit.Pos()).String(), v})
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

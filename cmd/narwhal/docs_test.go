package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/docgen"
)

const projectDir = "../.."

// TestGeneratedPages checks that docs/ holds what the code says now.
func TestGeneratedPages(t *testing.T) {
	diffs, err := docgen.Check(filepath.Join(projectDir, "docs"), generatedPages())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diffs {
		t.Errorf("page %s %s: make docs brings it up to date", d.Path, d.Why)
	}
}

// codesOf finds the finding codes in a folder's Go files: values of Code, and the first
// code-like literal that add, finding and diff are called with.
func codesOf(t *testing.T, dir string) []string {
	t.Helper()
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	found := map[string]bool{}
	for name, f := range goFiles(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Code" {
					if s := text(n.Value); s != "" {
						found[s] = true
					}
				}
			case *ast.CallExpr:
				if !slices.Contains([]string{"add", "finding", "diff"}, called(n)) {
					return true
				}
				for _, arg := range n.Args {
					if s := text(arg); kebab.MatchString(s) {
						found[s] = true
						return true
					}
					if b, ok := arg.(*ast.BinaryExpr); ok && text(b.X) == "statement-" {
						for _, c := range refusals(t) {
							found["statement-"+strings.ReplaceAll(c, "_", "-")] = true
						}
						return true
					}
				}
				passed := func(a ast.Expr) bool { id, ok := a.(*ast.Ident); return ok && id.Name == "code" }
				if called(n) == "finding" && !slices.ContainsFunc(n.Args, passed) {
					t.Errorf("%s: a finding whose code this test cannot read", name)
				}
			}
			return true
		})
	}
	out := []string{}
	for c := range found {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// refusals are the codes that attest gives to what it refuses.
func refusals(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, f := range goFiles(t, filepath.Join(projectDir, "attest")) {
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && called(c) == "refusal" && len(c.Args) == 2 {
				out = append(out, text(c.Args[0]))
			}
			return true
		})
	}
	if len(out) < 10 {
		t.Fatalf("found %d refusals of attest", len(out))
	}
	return out
}

func goFiles(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	out := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if out[name], err = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func text(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}

func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// rows returns the first cells, in backquotes, of the table below a heading.
func rows(t *testing.T, page, heading string) []string {
	t.Helper()
	_, body, ok := strings.Cut(readPage(t, page), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", page, heading)
	}
	if i := strings.Index(body, "\n## "); i >= 0 {
		body = body[:i]
	}
	var out []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(body, -1) {
		out = append(out, m[1])
	}
	return out
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(projectDir, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestEveryFindingIsDocumented compares the codes in each gate's code with its page.
func TestEveryFindingIsDocumented(t *testing.T) {
	for _, g := range pipeline() {
		folder := g.Info().Name
		if folder == "attest" {
			folder = "attestation"
		}
		page := "docs/gates/" + g.Info().Letter + ".md"
		codes, documented := codesOf(t, filepath.Join(projectDir, "gates", folder)), rows(t, page, "## Findings")
		if folder == "preflight" { // whose checks go on after the gates
			codes = append(codes, codesOf(t, filepath.Join(projectDir, "gates", "watch"))...)
		}
		for _, c := range codes {
			if !slices.Contains(documented, c) {
				t.Errorf("%s lacks the finding %s", page, c)
			}
		}
		for _, c := range documented {
			if !slices.Contains(codes, c) {
				t.Errorf("%s has the finding %s, which no code makes", page, c)
			}
		}
	}
	general := rows(t, "docs/gates/README.md", "## Findings of every gate")
	for _, c := range []string{"evidence-missing", "step-failed"} {
		if !slices.Contains(general, c) || !slices.Contains(codesOf(t, filepath.Join(projectDir, "gates")), c) {
			t.Errorf("the finding %s stands in code or page only", c)
		}
	}
}

// TestEveryBondIsDocumented compares the invalidation table with the gates' pages.
func TestEveryBondIsDocumented(t *testing.T) {
	count := map[string]int{}
	for _, b := range gates.Invalidation {
		row := "| `" + b.Evidence + "` | `" + strings.Join(b.Facts, "`, `") + "` |"
		page := "docs/gates/" + b.Evidence[:1] + ".md"
		count[page]++
		if !strings.Contains(readPage(t, page), "\n"+row+"\n") {
			t.Errorf("%s lacks the row %s", page, row)
		}
		if !slices.Contains(rows(t, page, "## Evidence"), b.Evidence) {
			t.Errorf("%s does not describe the evidence %s", page, b.Evidence)
		}
	}
	for page, n := range count {
		if got := len(rows(t, page, "## Bonds")); got != n {
			t.Errorf("%s has %d rows of bonds, the table %d", page, got, n)
		}
	}
}

// TestRecordPage compares kinds and problem codes with docs/record-format.md.
func TestRecordPage(t *testing.T) {
	kinds := rows(t, "docs/record-format.md", "## Kinds")
	for _, k := range record.Kinds() {
		if !slices.Contains(kinds, string(k)) {
			t.Errorf("docs/record-format.md lacks the kind %s", k)
		}
	}
	if len(kinds) != len(record.Kinds()) {
		t.Errorf("docs/record-format.md has %d kinds, the code %d", len(kinds), len(record.Kinds()))
	}
	page := readPage(t, "docs/record-format.md")
	for _, c := range verifyCodes(t) {
		if !strings.Contains(page, "`"+c+"`") {
			t.Errorf("docs/record-format.md lacks the problem %s", c)
		}
	}
}

// verifyCodes are what verifying a record can say.
func verifyCodes(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, f := range goFiles(t, filepath.Join(projectDir, "gates/record")) {
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 || len(v.Names) != 1 {
				return true
			}
			if name := v.Names[0].Name; strings.HasPrefix(name, "Problem") || strings.HasPrefix(name, "Notice") {
				out = append(out, text(v.Values[0]))
			}
			return true
		})
	}
	for _, f := range goFiles(t, filepath.Join(projectDir, "gates")) {
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && called(c) == "add" && len(c.Args) >= 4 {
				out = append(out, text(c.Args[0]))
			}
			return true
		})
	}
	if len(out) < 15 {
		t.Fatalf("found %d codes", len(out))
	}
	return out
}

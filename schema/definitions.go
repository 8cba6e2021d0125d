// Package schema loads fleet documents and says what is wrong with them.
//
// It promises: every error of a document at once, each with the user's own file, line
// and column, the field's path, a rule id, what was found and what is wanted; defaults
// filled in; the same verdict for the same bytes and environment. The definitions in
// this folder (*.cue) are the one source of names, types, defaults and limits of single
// fields; CUE decides on them, and rules in Go compare fields. Values of places that
// may hold secrets are never repeated in a message.
//
// It refuses to read files or the environment itself: callers hand in bytes and
// functions. It is the only importer of cuelang.org/go.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
)

//go:embed *.cue cue.mod/module.cue
var files embed.FS

// definitions are the embedded files, parsed once.
type definitions struct {
	syntax     map[string]ast.Expr // by name, "#Fleet"
	structures map[*ast.StructLit]structure
	files      []*ast.File
}

var loadDefinitions = sync.OnceValue(func() *definitions {
	d := &definitions{syntax: map[string]ast.Expr{}, structures: map[*ast.StructLit]structure{}}
	names, err := fs.Glob(files, "*.cue")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			panic(err) // embedded
		}
		f, err := parser.ParseFile(name, b, parser.ParseComments)
		if err != nil {
			panic(fmt.Sprintf("parse embedded definitions: %v", err)) // a test loads them
		}
		d.files = append(d.files, f)
		for _, decl := range f.Decls {
			if f, ok := decl.(*ast.Field); ok {
				if id, ok := f.Label.(*ast.Ident); ok {
					d.syntax[id.Name] = f.Value
				}
			}
		}
		ast.Walk(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.StructLit); ok {
				d.structures[lit] = structureOf(lit)
			}
			return true
		}, nil)
	}
	return d
})

// evaluator holds one CUE context. A context is not safe for concurrent use and keeps
// what it evaluated, so each load makes its own: 3 ms (BenchmarkValidate6).
type evaluator struct {
	ctx   *cue.Context
	fleet cue.Value
}

func newEvaluator() (*evaluator, error) {
	e := &evaluator{ctx: cuecontext.New()}
	v := e.ctx.CompileString(definitionText())
	if err := v.Err(); err != nil {
		return nil, fmt.Errorf("compile embedded definitions: %w", err)
	}
	e.fleet = v.LookupPath(cue.ParsePath("#Fleet"))
	return e, e.fleet.Err()
}

// definitionText joins the embedded files into one.
var definitionText = sync.OnceValue(func() string {
	var b strings.Builder
	names, _ := fs.Glob(files, "*.cue")
	slices.SortFunc(names, func(a, b string) int { // the file with the package comment first
		return strings.Compare(order(a), order(b))
	})
	for i, name := range names {
		src, _ := files.ReadFile(name)
		text := string(src)
		if i > 0 {
			_, text, _ = strings.Cut(text, "package schema\n")
		}
		b.WriteString(strings.TrimLeft(text, "\n"))
		if i < len(names)-1 {
			b.WriteString("\n")
		}
	}
	return b.String()
})

func order(name string) string {
	if name == "fleet.cue" {
		return ""
	}
	return name
}

// member is one declared field of a definition.
type member struct {
	name     string
	value    ast.Expr
	required bool
	optional bool
	doc      string
}

// structure is a definition's struct: declared fields in order, and patterns of names.
type structure struct {
	members  []member
	byName   map[string]int
	patterns []pattern
}

type pattern struct{ name, value ast.Expr }

func (s structure) names() []string {
	out := make([]string, len(s.members))
	for i, m := range s.members {
		out[i] = m.name
	}
	return out
}

func (s structure) member(name string) (member, bool) {
	if i, ok := s.byName[name]; ok {
		return s.members[i], true
	}
	return member{}, false
}

// structureOf reads a struct literal of the definitions. #Annotated is left out: its
// keys are gone before a document is compared.
func structureOf(lit *ast.StructLit) structure {
	s := structure{byName: map[string]int{}}
	for _, decl := range lit.Elts {
		f, ok := decl.(*ast.Field)
		if !ok {
			continue
		}
		switch l := f.Label.(type) {
		case *ast.ListLit:
			s.patterns = append(s.patterns, pattern{l.Elts[0], f.Value})
		case *ast.Ident:
			s.byName[l.Name] = len(s.members)
			s.members = append(s.members, member{
				name: l.Name, value: f.Value, doc: docOf(f),
				required: f.Constraint.String() == "!", optional: f.Constraint.String() == "?",
			})
		}
	}
	return s
}

func docOf(f *ast.Field) string {
	var lines []string
	for _, g := range ast.Comments(f) {
		if g.Doc {
			lines = append(lines, strings.TrimSpace(g.Text()))
		}
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "\n", " ")
}

package schema

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
)

// allowedImports are CUE's packages whose work is bounded by the size of their input.
// The others make long lists, run templates or programs, or are not needed for a fleet.
var allowedImports = []string{"encoding/base64", "encoding/hex", "encoding/json", "net", "path", "regexp", "strconv", "strings", "struct"}

// maxLoops is how many comprehensions may stand inside each other.
const maxLoops = 3

// refused are functions of allowed packages whose result is longer than their input.
var refused = map[string][]string{"strings": {"Repeat"}}

// harmless reports what a CUE file must not hold: imports that are not allowed, and
// comprehensions nested deeply.
func (r *cueReader) harmless(src int, f *ast.File) bool {
	before := len(r.rep.errors) + r.rep.dropped
	names := r.imports(src, f)
	loops := 0
	enter := func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Comprehension:
			if loops += clauses(x); loops > maxLoops {
				r.rep.add(fault{rule: "cue-bounds", pos: &pos{src: src, off: x.Pos().Offset()},
					says: fmt.Sprintf("comprehensions are nested more than %d loops deep", maxLoops), hint: "write the values out"})
			}
		case *ast.SelectorExpr:
			id, ok := x.X.(*ast.Ident)
			sel, is := x.Sel.(*ast.Ident)
			if ok && is && slices.Contains(refused[names[id.Name]], sel.Name) {
				r.rep.add(fault{rule: "cue-bounds", pos: &pos{src: src, off: x.Pos().Offset()},
					says: id.Name + "." + sel.Name + " is not available here", hint: "write the value out"})
			}
		}
		return true
	}
	leave := func(n ast.Node) {
		if x, ok := n.(*ast.Comprehension); ok {
			loops -= clauses(x)
		}
	}
	ast.Walk(f, enter, leave)
	return len(r.rep.errors)+r.rep.dropped == before
}

func clauses(c *ast.Comprehension) (n int) {
	for _, x := range c.Clauses {
		if _, ok := x.(*ast.ForClause); ok {
			n++
		}
	}
	return n
}

// imports checks the imports of a file and returns their paths by the names that they have there.
func (r *cueReader) imports(src int, f *ast.File) map[string]string {
	names := map[string]string{}
	for spec := range f.ImportSpecs() {
		p, err := literal.Unquote(spec.Path.Value)
		p, _, _ = strings.Cut(p, ":")
		if err != nil || !slices.Contains(allowedImports, p) {
			r.rep.add(fault{rule: "import", pos: &pos{src: src, off: spec.Path.Pos().Offset()},
				says: "import " + quote(p) + ": this package cannot be imported here",
				hint: "available are " + strings.Join(allowedImports, ", ") + "; the definitions are added without an import"})
			continue
		}
		name := p[strings.LastIndexByte(p, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

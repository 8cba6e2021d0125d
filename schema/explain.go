package schema

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
)

// explainer walks a document beside the definitions and names every fault of shape.
type explainer struct {
	shape
	rep *report
}

func explain(rep *report, n *node) {
	x := explainer{shape{loadDefinitions()}, rep}
	x.value(x.defs.syntax["#Fleet"], n, nil)
}

func (x explainer) value(e ast.Expr, n *node, p trail) {
	switch n.kind {
	case kindBad, kindOpen:
		return
	case kindObject:
		if lit := x.structLit(e); lit != nil {
			x.object(lit, n, p)
			return
		}
	case kindArray:
		if elem, least, ok := x.list(e); ok {
			x.elements(elem, least, n, p)
			return
		}
	}
	if !x.accepts(e, n) {
		x.misfit(e, n, p)
	}
}

func (x explainer) object(lit *ast.StructLit, n *node, p trail) {
	s := x.defs.structures[lit]
	for _, m := range s.members {
		if m.required && n.get(m.name) == nil {
			x.rep.add(fault{rule: "required", path: p.add(key(m.name)), pos: &n.pos, got: "nothing",
				want: x.describe(m.value), says: "is required, want " + x.describe(m.value)})
		}
	}
	for _, f := range n.fields {
		at := p.add(key(f.name))
		if m, ok := s.member(f.name); ok {
			x.value(m.value, f.value, at)
			continue
		}
		x.named(s, f, at)
	}
}

// named checks a member that is not declared against the patterns of names.
func (x explainer) named(s structure, f field, at trail) {
	name := &node{kind: kindString, text: f.name}
	for _, pt := range s.patterns {
		if x.accepts(pt.name, name) {
			x.value(pt.value, f.value, at)
			return
		}
	}
	if len(s.patterns) > 0 {
		want := x.describe(s.patterns[0].name)
		x.rep.add(fault{rule: "key-form", path: at, pos: &f.key, got: quote(f.name), want: want})
		return
	}
	hint := "known here: " + strings.Join(s.names(), ", ")
	if near := nearest(f.name, s.names()); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	x.rep.add(fault{rule: "unknown-field", path: at, pos: &f.key, got: quote(f.name), says: "no such field", hint: hint})
}

func (x explainer) elements(elem ast.Expr, least int, n *node, p trail) {
	if len(n.items) < least {
		x.rep.add(fault{rule: "list-length", path: p, got: fmt.Sprintf("%d entries", len(n.items)), want: fmt.Sprintf("at least %d", least)})
	}
	for i, item := range n.items {
		x.value(elem, item, p.add(at(i)))
	}
}

// misfit reports a value that its expression refuses.
func (x explainer) misfit(e ast.Expr, n *node, p trail) {
	f := fault{rule: "limit", path: p, got: show(p, n), want: x.describe(e)}
	switch {
	case !x.kindKnown(e, n.kind):
		f.rule = "type"
		f.hint = typeHint(f.want, n)
	case n.kind == kindString && x.isChoice(e):
		f.rule = "choice"
		if near := nearest(n.text, x.choices(e)); near != "" && near != n.text {
			f.hint = fmt.Sprintf("did you mean %q?", near)
		}
	case n.kind == kindString:
		f.rule = "form"
	case p.String() == "schema_version":
		f.rule = "choice"
	}
	x.rep.add(f)
}

func typeHint(want string, n *node) string {
	if n.kind == kindFloat && strings.Contains(want, "whole number") {
		return "write it without a fraction or exponent"
	}
	if n.kind == kindString && strings.Contains(want, "true or false") && !contains([]string{"true", "false"}, n.text) {
		return "write true or false"
	}
	if n.kind == kindString && (strings.Contains(want, "number") || strings.Contains(want, "true or false")) {
		return "write it without quotes"
	}
	return ""
}

// kindKnown reports whether any alternative takes values of that kind.
func (x explainer) kindKnown(e ast.Expr, k kind) bool {
	for _, a := range x.alternatives(e) {
		if slices.Contains(x.kinds(a), k) {
			return true
		}
	}
	return false
}

func (x explainer) kinds(e ast.Expr) []kind {
	switch v := x.resolve(e).(type) {
	case *ast.Ident:
		switch v.Name {
		case "string":
			return []kind{kindString}
		case "bool":
			return []kind{kindBool}
		case "int64":
			return []kind{kindInt}
		case "number":
			return []kind{kindInt, kindFloat}
		}
	case *ast.BasicLit:
		if n := literalNode(v); n != nil {
			return []kind{n.kind}
		}
	case *ast.BinaryExpr:
		return x.kinds(v.X)
	case *ast.UnaryExpr:
		if _, ok := bounds[v.Op]; !ok {
			return []kind{kindString}
		}
	case *ast.StructLit:
		return []kind{kindObject}
	case *ast.ListLit:
		return []kind{kindArray}
	}
	return nil
}

// isChoice reports whether the text must be one of several literals.
func (x explainer) isChoice(e ast.Expr) bool {
	return len(x.choices(e)) == len(x.alternatives(e))
}

func (x explainer) choices(e ast.Expr) []string {
	var out []string
	for _, a := range x.alternatives(e) {
		if lit, ok := x.resolve(a).(*ast.BasicLit); ok {
			if n := literalNode(lit); n != nil && n.kind == kindString {
				out = append(out, n.text)
			}
		}
	}
	return out
}

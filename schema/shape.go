package schema

import (
	"cmp"
	"math/big"
	"regexp"
	"strconv"
	"sync"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// shape reads the subset of CUE in which the definitions are written: it names the
// fault of a value in the user's terms. CUE itself has the last word (see judge), and
// TestExplainAgreesWithCUE holds the two together.
type shape struct{ defs *definitions }

// resolve follows references and parentheses.
func (s shape) resolve(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.UnaryExpr:
			if x.Op != token.MUL {
				return e
			}
			e = x.X
		case *ast.Ident:
			d, ok := s.defs.syntax[x.Name]
			if !ok {
				return e
			}
			e = d
		default:
			return e
		}
	}
}

// alternatives splits a disjunction.
func (s shape) alternatives(e ast.Expr) []ast.Expr { return s.split(e, token.OR) }

// parts splits a conjunction.
func (s shape) parts(e ast.Expr) []ast.Expr { return s.split(e, token.AND) }

func (s shape) split(e ast.Expr, op token.Token) []ast.Expr {
	if isDefault(e) {
		return []ast.Expr{e}
	}
	if b, ok := s.resolve(e).(*ast.BinaryExpr); ok && b.Op == op {
		return append(s.split(b.X, op), s.split(b.Y, op)...)
	}
	return []ast.Expr{e}
}

// isDefault reports whether an alternative is a default that only repeats a plain value.
func isDefault(e ast.Expr) bool {
	u, ok := e.(*ast.UnaryExpr)
	return ok && u.Op == token.MUL
}

// accepts reports whether a value without members of its own fits an expression.
func (s shape) accepts(e ast.Expr, n *node) bool {
	if alts := s.alternatives(e); len(alts) > 1 {
		for _, a := range alts {
			if s.accepts(a, n) {
				return true
			}
		}
		return false
	}
	for _, part := range s.parts(e) {
		if !s.fits(s.resolve(part), n) {
			return false
		}
	}
	return true
}

func (s shape) fits(e ast.Expr, n *node) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return kindFits(x.Name, n)
	case *ast.BasicLit:
		return literalFits(x, n)
	case *ast.StructLit:
		return n.kind == kindObject
	case *ast.ListLit:
		return n.kind == kindArray
	case *ast.UnaryExpr:
		return boundFits(x, n)
	case *ast.BinaryExpr:
		return s.accepts(e, n)
	}
	return false
}

func kindFits(name string, n *node) bool {
	switch name {
	case "_":
		return true
	case "string":
		return n.kind == kindString
	case "bool":
		return n.kind == kindBool
	case "number":
		return n.kind == kindInt || n.kind == kindFloat
	case "int64":
		v, ok := new(big.Int).SetString(n.text, 10)
		return n.kind == kindInt && ok && v.IsInt64()
	}
	return false
}

func literalFits(x *ast.BasicLit, n *node) bool {
	switch x.Kind {
	case token.NULL:
		return n.kind == kindNull
	case token.TRUE, token.FALSE:
		return n.kind == kindBool && n.bool == (x.Kind == token.TRUE)
	case token.STRING:
		text, err := literal.Unquote(x.Value)
		return err == nil && n.kind == kindString && n.text == text
	case token.INT:
		return n.kind == kindInt && compare(n.text, x.Value) == 0
	case token.FLOAT:
		return n.kind == kindFloat && compare(n.text, x.Value) == 0
	}
	return false
}

// compare orders two finite decimal literals by the 64-bit floats that they stand for.
func compare(a, b string) int {
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)
	return cmp.Compare(x, y)
}

func boundFits(x *ast.UnaryExpr, n *node) bool {
	lit, ok := x.X.(*ast.BasicLit)
	if !ok {
		return false
	}
	if x.Op == token.MAT {
		return n.kind == kindString && patternOf(lit).MatchString(n.text)
	}
	if n.kind != kindInt && n.kind != kindFloat {
		return false
	}
	c := compare(n.text, lit.Value)
	switch x.Op {
	case token.GTR:
		return c > 0
	case token.GEQ:
		return c >= 0
	case token.LSS:
		return c < 0
	case token.LEQ:
		return c <= 0
	}
	return false
}

var patterns sync.Map // literal → *regexp.Regexp

func patternOf(lit *ast.BasicLit) *regexp.Regexp {
	if re, ok := patterns.Load(lit.Value); ok {
		return re.(*regexp.Regexp)
	}
	text, err := literal.Unquote(lit.Value)
	if err != nil {
		text = "^$"
	}
	re := regexp.MustCompile(text) // the definitions are embedded; a test compiles them
	patterns.Store(lit.Value, re)
	return re
}

// structLit returns the struct among the alternatives of an expression, if any.
func (s shape) structLit(e ast.Expr) *ast.StructLit {
	for _, a := range s.alternatives(e) {
		if lit, ok := s.resolve(a).(*ast.StructLit); ok {
			return lit
		}
	}
	return nil
}

// list returns the open list among the alternatives: its element, and the least length.
func (s shape) list(e ast.Expr) (elem ast.Expr, least int, ok bool) {
	for _, a := range s.alternatives(e) {
		lit, is := s.resolve(a).(*ast.ListLit)
		if !is {
			continue
		}
		for _, x := range lit.Elts {
			if open, is := x.(*ast.Ellipsis); is {
				return open.Type, len(lit.Elts) - 1, true
			}
		}
	}
	return nil, 0, false
}

package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"
)

// ExportCUE returns the definitions as one CUE file.
func ExportCUE() []byte { return []byte(definitionText()) }

// ExportJSONSchema returns the definitions as JSON Schema 2020-12, for editors. Names,
// kinds, limits, choices, defaults and comments are there; rules that compare fields
// are not, and ${NAME} references count as text.
func ExportJSONSchema() ([]byte, error) {
	x := exporter{shape{loadDefinitions()}}
	defs := object{}
	for _, f := range x.defs.files {
		for _, decl := range f.Decls {
			field, ok := decl.(*ast.Field)
			if !ok {
				continue
			}
			name := field.Label.(*ast.Ident).Name
			if name == "#Annotated" {
				continue
			}
			def := x.schema(field.Value)
			if doc := docOf(field); doc != "" {
				def.put("description", doc)
			}
			defs.put(strings.TrimPrefix(name, "#"), def)
		}
	}
	top := object{}
	top.put("$schema", "https://json-schema.org/draft/2020-12/schema")
	top.put("$id", "https://github.com/narwhal-fleet/narwhal/schema/fleet.schema.json")
	top.put("title", "narwhal.fleet version 2")
	top.put("$ref", "#/$defs/Fleet")
	top.put("$defs", &defs)
	b, err := json.MarshalIndent(&top, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write JSON Schema: %w", err)
	}
	return append(b, '\n'), nil
}

// object is a JSON object that keeps the order of its members.
type object struct {
	names  []string
	values []any
}

func (o *object) put(name string, v any) {
	o.names, o.values = append(o.names, name), append(o.values, v)
}

// MarshalJSON writes the members in order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", name)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o.values[i]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

type exporter struct{ shape }

func (x exporter) schema(e ast.Expr) *object {
	o := &object{}
	x.into(o, e)
	return o
}

func (x exporter) into(o *object, e ast.Expr) {
	switch v := e.(type) {
	case *ast.ParenExpr:
		x.into(o, v.X)
	case *ast.Ident:
		if _, ok := x.defs.syntax[v.Name]; ok {
			o.put("$ref", "#/$defs/"+strings.TrimPrefix(v.Name, "#"))
		} else if t := map[string]string{"string": "string", "bool": "boolean", "number": "number", "int64": "integer"}[v.Name]; t != "" {
			o.put("type", t)
		}
	case *ast.BasicLit:
		o.put("const", x.plain(v))
	case *ast.UnaryExpr:
		x.bound(o, v)
	case *ast.StructLit:
		x.object(o, v)
	case *ast.ListLit:
		x.array(o, v)
	case *ast.BinaryExpr:
		if v.Op == token.AND {
			x.into(o, v.X)
			x.into(o, v.Y)
			return
		}
		x.anyOf(o, e)
	}
}

func (x exporter) bound(o *object, v *ast.UnaryExpr) {
	if v.Op == token.MUL {
		x.into(o, v.X)
		return
	}
	lit := v.X.(*ast.BasicLit)
	if v.Op == token.MAT {
		text, _ := literal.Unquote(lit.Value)
		o.put("type", "string")
		o.put("pattern", strings.TrimPrefix(text, "(?s)"))
		return
	}
	o.put(map[token.Token]string{
		token.GTR: "exclusiveMinimum", token.GEQ: "minimum", token.LSS: "exclusiveMaximum", token.LEQ: "maximum",
	}[v.Op], x.plain(lit))
}

func (x exporter) object(o *object, v *ast.StructLit) {
	s := structureOf(v)
	props, pats := &object{}, &object{}
	var required []string
	for _, m := range s.members {
		p := x.schema(m.value)
		if m.doc != "" {
			p.put("description", m.doc)
		}
		props.put(m.name, p)
		if m.required {
			required = append(required, m.name)
		}
	}
	o.put("type", "object")
	if len(s.members) > 0 {
		o.put("properties", props)
		pats.put("^_", true)
	}
	if len(required) > 0 {
		o.put("required", required)
	}
	open := false
	for _, p := range s.patterns {
		if lit := x.pattern(p.name); lit != "" {
			pats.put(lit, x.schema(p.value))
		} else {
			o.put("additionalProperties", x.schema(p.value))
			open = true
		}
	}
	if len(pats.names) > 0 {
		o.put("patternProperties", pats)
	}
	if !open {
		o.put("additionalProperties", false)
	}
}

// pattern returns the regular expression of a name, "" for any name.
func (x exporter) pattern(e ast.Expr) string {
	u, ok := x.resolve(e).(*ast.UnaryExpr)
	if !ok {
		return ""
	}
	text, _ := literal.Unquote(u.X.(*ast.BasicLit).Value)
	return text
}

func (x exporter) array(o *object, v *ast.ListLit) {
	o.put("type", "array")
	if elem, least, ok := x.list(v); ok {
		o.put("items", x.schema(elem))
		if least > 0 {
			o.put("minItems", least)
		}
	}
}

// anyOf writes a disjunction: plain choices as enum, a default beside what covers it
// as that with a default, the rest as anyOf.
func (x exporter) anyOf(o *object, e ast.Expr) {
	alts := x.alternatives(e)
	var def any
	hasDefault := false
	var rest []ast.Expr
	for i, a := range alts {
		if isDefault(a) {
			def, hasDefault = x.plain(x.resolve(a)), true
			if x.covered(a.(*ast.UnaryExpr).X, append(alts[:i:i], alts[i+1:]...)) {
				continue
			}
		}
		rest = append(rest, a)
	}
	if values, ok := x.enum(rest); ok {
		o.put("enum", values)
	} else if len(rest) == 1 {
		x.into(o, rest[0])
	} else {
		var list []*object
		for _, a := range rest {
			list = append(list, x.schema(a))
		}
		o.put("anyOf", list)
	}
	if hasDefault {
		o.put("default", def)
	}
}

func (x exporter) enum(alts []ast.Expr) ([]any, bool) {
	var values []any
	for _, a := range alts {
		lit, ok := x.resolve(a).(*ast.BasicLit)
		if !ok {
			return nil, false
		}
		values = append(values, x.plain(lit))
	}
	return values, len(values) > 1
}

// plain returns the JSON value of a literal.
func (x exporter) plain(e ast.Expr) any {
	switch v := e.(type) {
	case *ast.BasicLit:
		switch n := literalNode(v); n.kind {
		case kindBool:
			return n.bool
		case kindString:
			return n.text
		case kindInt, kindFloat:
			return json.Number(n.text)
		}
	case *ast.ListLit:
		list := []any{}
		for _, el := range v.Elts {
			list = append(list, x.plain(el))
		}
		return list
	}
	return nil
}

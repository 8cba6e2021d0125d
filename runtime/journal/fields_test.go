package journal

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// described lists a type's members as the tables do: key, type, and whether it can be absent.
func described(t reflect.Type, prefix string) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			continue
		}
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		optional := ""
		if options == "omitempty" {
			optional = " optional"
		}
		kind, inner := kindOf(f.Type)
		out = append(out, prefix+key+" "+kind+optional)
		if inner != nil {
			dot := "."
			if kind == "list" {
				dot = "[]."
			}
			out = append(out, described(inner, prefix+key+dot)...)
		}
	}
	return out
}

func kindOf(t reflect.Type) (kind string, inner reflect.Type) {
	if t == reflect.TypeFor[json.RawMessage]() {
		return "object", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		kind, inner = kindOf(t.Elem())
		return kind + " or null", inner
	case reflect.Interface:
		return "object or null", nil
	case reflect.Struct:
		return "object", t
	case reflect.Slice:
		if _, members := kindOf(t.Elem()); members == nil {
			return "list", nil
		}
		return "list", t.Elem()
	case reflect.Map:
		return "object", nil
	case reflect.Float64:
		return "number", nil
	}
	return t.Kind().String(), nil
}

// TestTheTablesAreTheTypes compares keys, order, types and presence.
func TestTheTablesAreTheTypes(t *testing.T) {
	for _, c := range []struct {
		name  string
		table []Field
		typ   reflect.Type
	}{{"meta", MetaFields(), reflect.TypeFor[Meta]()}, {"head", HeadFields(), reflect.TypeFor[Head]()}, {"row", RowFields(), reflect.TypeFor[Row]()}} {
		var got []string
		for _, f := range c.table {
			optional := ""
			// The writer gives every meta line its time.
			if f.When != "" || c.name == "meta" && f.Key == "at_unix" {
				optional = " optional"
			}
			got = append(got, f.Key+" "+f.Type+optional)
		}
		if d := cmp.Diff(described(c.typ, ""), got); d != "" {
			t.Errorf("table of %s (-type +table):\n%s", c.name, d)
		}
	}
}

// TestRecordedEventsAreInTheTable checks that the tables know each kind of event of the
// reference's journals, and the two of the writer itself.
func TestRecordedEventsAreInTheTable(t *testing.T) {
	known := map[string]EventKind{}
	for _, k := range EventKinds() {
		if known[k.Name].Name != "" || k.Says == "" {
			t.Errorf("event %s is repeated or says nothing", k.Name)
		}
		known[k.Name] = k
	}
	eachRecorded(t, func(_ string, l Line) {
		if l.Event != nil && known[l.Event.Name].Name == "" {
			t.Errorf("no event %s", l.Event.Name)
		}
	})
	// The writer's own, as it makes them.
	file, err := parser.ParseFile(token.NewFileSet(), "scribe.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	ast.Inspect(file, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, is := c.Fun.(*ast.SelectorExpr); !is || f.Sel.Name != "say" {
			return true
		}
		said++
		name, _ := strconv.Unquote(c.Args[0].(*ast.BasicLit).Value)
		var keys, want []string
		for _, e := range c.Args[1].(*ast.CompositeLit).Elts {
			k, _ := strconv.Unquote(e.(*ast.KeyValueExpr).Key.(*ast.BasicLit).Value)
			keys = append(keys, k)
		}
		for _, f := range known[name].Fields {
			want = append(want, f.Key)
		}
		if d := cmp.Diff(want, keys); d != "" {
			t.Errorf("event %s (-table +code):\n%s", name, d)
		}
		return true
	})
	if said < 3 {
		t.Errorf("found %d events of the writer", said)
	}
}

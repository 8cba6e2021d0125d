package router

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// leaf is one key of the plain document and the Go field that holds it.
type leaf struct{ key, section, field string }

// leavesOf lists the keys below a type. section is the field that the type is the value of.
func leavesOf(prefix, section string, t reflect.Type) (out []leaf) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		key, in := strings.TrimPrefix(prefix+"."+name, "."), f.Type
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		if in.Kind() == reflect.Slice {
			key, in = key+"[]", in.Elem()
		}
		switch {
		case key == "deploy": // of the gates
		case in.Kind() == reflect.Struct:
			out = append(out, leavesOf(key, f.Name, in)...)
		default:
			out = append(out, leaf{key, section, f.Name})
		}
	}
	return out
}

// reads are the fields that a program's sources select: of a section by its name or by a
// variable that was set to it, and by their own name alone.
type reads struct {
	of    map[[2]string]bool
	alone map[string]bool
}

func (r reads) file(f *ast.File) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names := map[string]string{} // of variables: the section that they hold
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					id, isName := left.(*ast.Ident)
					if isName && len(n.Rhs) == len(n.Lhs) {
						if s, ok := n.Rhs[i].(*ast.SelectorExpr); ok {
							names[id.Name] = s.Sel.Name
						}
					}
				}
			case *ast.SelectorExpr:
				r.alone[n.Sel.Name] = true
				switch x := n.X.(type) {
				case *ast.SelectorExpr:
					r.of[[2]string{x.Sel.Name, n.Sel.Name}] = true
				case *ast.Ident:
					r.of[[2]string{names[x.Name], n.Sel.Name}] = true
				}
			}
			return true
		})
	}
}

// shows matches sources in which reading a key is not acting on it: tests, and what only shows
// settings.
var shows = regexp.MustCompile(`_test\.go$|^config_unused|^state|^metrics`)

// A key of the document that Settings says the router acts on is read by the router, or by the
// verb that starts it: a new one cannot be accepted and forgotten.
func TestEverySettingIsReadOrNamed(t *testing.T) {
	r := reads{map[[2]string]bool{}, map[string]bool{}}
	for _, pattern := range []string{"*.go", "../../cmd/narwhal/serve*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			if shows.MatchString(name) {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.file(f)
		}
	}
	table := map[string]Use{}
	for _, k := range Settings() {
		table[k.Key] = k.Use
	}
	all := leavesOf("", "", reflect.TypeFor[fleet.Fleet]())
	times := map[string]int{}
	for _, l := range all {
		times[l.field]++
	}
	for _, l := range all {
		use, known := useOf(table, l.key)
		switch {
		case !known:
			t.Errorf("config_table.go lacks the key %s", l.key)
		case use != UseActed || l.key == "schema" || l.key == "schema_version": // which loading judges
		case times[l.field] == 1 && !r.alone[l.field], times[l.field] > 1 && !r.of[[2]string{l.section, l.field}] && l.section != "Engines":
			t.Errorf("config_table.go says that the router acts on %s, and nothing reads its field %s.%s", l.key, l.section, l.field)
		}
	}
}

// Numbers that no time and no memory has are refused, or stand for the largest that there is.
func TestExtremeNumbers(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Fleet.SLO.TTFTS = 1e-300 },
		func(c *Config) { c.Fleet.SLO.TTFTS = 1e308 },
		func(c *Config) { c.Fleet.SLO.TPOTS = 1e-5 },
		func(c *Config) { c.Fleet.SLO.TPOTS = 1e308 },
	} {
		cfg := childConfig([]fleet.Engine{{IID: "e0", URL: "http://127.0.0.1:1"}}, "")
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "slo.t") {
			t.Errorf("%+v: %v", cfg.Fleet.SLO, err)
		}
	}
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.RequestTimeoutS, c.Fleet.Engine.HealthTimeoutS, c.Fleet.Engine.ConnectTimeoutS = 1e300, 9.3e9, 1e300
		c.Fleet.Serving.MaxRequestBytes, c.Fleet.Serving.BodyMemoryBytes = 1<<62, 0
	})
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

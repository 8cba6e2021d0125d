package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/narwhal-fleet/narwhal/"

// arrows says which rooms a room may import. A room includes the folders below it
// unless they have a line of their own; internal leaves may be imported everywhere.
var arrows = map[string][]string{
	"schema":            {"fleet"},
	"fleet":             {},
	"fleet/remote":      {"fleet"},
	"gates":             {"fleet", "fleet/remote", "gates/record", "attest"},
	"gates/record":      {},
	"gates/discover":    {"gates", "fleet", "fleet/remote", "gates/record"},
	"gates/install":     {"gates", "fleet", "fleet/remote", "gates/record", "attest"},
	"gates/engines":     {"gates", "fleet", "gates/record", "runtime/engine"},
	"gates/fabric":      {"gates", "fleet", "gates/record", "runtime/engine"},
	"gates/attestation": {"gates", "fleet", "gates/record", "attest"},
	"gates/preflight":   {"gates", "fleet", "gates/record", "attest", "runtime/engine", "runtime/profile"},
	"gates/watch":       {"gates", "gates/attestation", "gates/preflight", "fleet", "fleet/remote", "gates/record", "runtime/engine"},
	"gates/serve":       {"gates", "fleet", "fleet/remote", "gates/record", "runtime/bench", "runtime/journal", "runtime/lifecycle", "bundle"},
	"attest":            {"fleet", "runtime/engine"},
	"runtime/model":     {"runtime/profile"},
	"runtime/profile":   {},
	"runtime/sched":     {"runtime/model", "runtime/profile"},
	"runtime/control":   {"runtime/model", "runtime/sched", "runtime/profile"},
	"runtime/drift":     {},
	"runtime/prefix":    {},
	"runtime/engine":    {"fleet"},
	"runtime/router": {"fleet", "runtime/engine", "runtime/model", "runtime/profile", "runtime/sched", "runtime/control", "runtime/drift", "runtime/prefix",
		"runtime/journal", "runtime/replay", "runtime/router/lease", "runtime/router/standby", "runtime/router/tenant"},
	"runtime/router/tenant":  {"fleet"},
	"runtime/router/lease":   {"fleet"},
	"runtime/router/standby": {"runtime/router/lease"},
	"runtime/journal":        {"runtime/model", "runtime/profile"},
	"runtime/replay":         {"runtime/journal", "runtime/model", "runtime/profile", "runtime/sched", "runtime/control"},
	"runtime/lifecycle":      {"fleet"},
	"runtime/bench":          {"runtime/journal", "fleet"},
	"runtime/simulate":       {"runtime/model", "runtime/sched", "runtime/control", "runtime/profile", "runtime/prefix"},
	"bundle":                 {"gates/record", "fleet/remote", "fleet"},
	"presets":                {"fleet", "schema"},
	"internal/evaluation":    {"runtime/simulate", "runtime/bench", "runtime/model"},
	"internal/sandbox":       {"fleet/remote"},
	"internal/realengines":   {"runtime/engine"},
}

// sole names the room that alone may import a module.
var sole = map[string]string{
	"cuelang.org/go":               "schema",
	"github.com/sigstore/":         "attest",
	"golang.org/x/crypto/ssh":      "fleet/remote",
	"github.com/pkg/sftp":          "fleet/remote",
	"github.com/skeema/knownhosts": "fleet/remote",
	"github.com/kevinburke/":       "fleet/remote",
	"go.etcd.io/":                  "runtime/router/lease",
	"go.opentelemetry.io/":         "cmd/narwhal",
}

func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	walk(t, func(pkg, file string, imports []string) {
		seen[roomOf(pkg)] = true
		for _, imp := range imports {
			if ours, ok := strings.CutPrefix(imp, module); ok && !allowed(pkg, ours) {
				t.Errorf("%s imports %s; %s may import only %v", file, ours, roomOf(pkg), arrows[roomOf(pkg)])
			}
			for prefix, room := range sole {
				if strings.HasPrefix(imp, prefix) && roomOf(pkg) != room {
					t.Errorf("%s imports %s; only %s may", file, imp, room)
				}
			}
		}
	})
	for room := range arrows {
		if !seen[room] {
			t.Errorf("room %s has a line in the table and no Go file", room)
		}
	}
}

// roomOf is the longest line of the table that holds the package.
func roomOf(pkg string) string {
	for p := pkg; p != "."; p = filepath.Dir(p) {
		if _, ok := arrows[p]; ok {
			return p
		}
	}
	return pkg
}

func allowed(pkg, imp string) bool {
	room, other := roomOf(pkg), roomOf(imp)
	if strings.HasPrefix(pkg, "cmd/") || room == other {
		return true
	}
	if _, ruled := arrows[other]; !ruled && strings.HasPrefix(imp, "internal/") {
		return true
	}
	if strings.HasPrefix(pkg, "internal/") && arrows[room] == nil {
		return false
	}
	for _, ok := range arrows[room] {
		if other == ok {
			return true
		}
	}
	return false
}

// TestPackageComments checks that every package says what it promises and refuses.
func TestPackageComments(t *testing.T) {
	comments := map[string]bool{}
	root := rootDir(t)
	walk(t, func(pkg, file string, _ []string) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		comments[pkg] = comments[pkg] || (f.Doc != nil && len(f.Doc.Text()) > 80)
	})
	for pkg, ok := range comments {
		if !ok {
			t.Errorf("package %s has no comment that says what it promises and refuses", pkg)
		}
	}
}

func rootDir(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "..", "..")
}

// walk visits every Go file that is no test, with its folder and imports.
func walk(t *testing.T, visit func(pkg, file string, imports []string)) {
	t.Helper()
	root := rootDir(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && path != root || name == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, i := range f.Imports {
			s, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, s)
		}
		visit(filepath.ToSlash(filepath.Dir(rel)), rel, imports)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

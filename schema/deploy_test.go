package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// secretText stands where a document of testdata/deploy holds a literal secret.
const secretText = "hunter2"

func deployFiles(t *testing.T, kind string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/deploy/" + kind + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents in testdata/deploy/%s (%v)", kind, err)
	}
	return files
}

func TestDeployValid(t *testing.T) {
	for _, file := range deployFiles(t, "valid") {
		doc, err := loadFile(t, file, Options{Strict: true})
		if err != nil {
			t.Errorf("%s: %v", file, fields(problem.All(err)))
			continue
		}
		for _, e := range doc.Fleet.Engines {
			if _, err := doc.Fleet.Resolve(e.IID); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// blame reads a document's first line: "# FIELD RULE".
func blame(t *testing.T, file string) (field, rule string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	line = strings.TrimPrefix(line, "# ")
	i := strings.LastIndexByte(line, ' ')
	return line[:i], line[i+1:]
}

func TestDeployOneFault(t *testing.T) {
	for _, file := range deployFiles(t, "invalid") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			field, rule := blame(t, file)
			_, err := loadFile(t, file, Options{})
			expectBlame(t, problem.All(err), field, rule)
		})
	}
}

func TestDeployWarnings(t *testing.T) {
	for _, file := range deployFiles(t, "warned") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			field, rule := blame(t, file)
			doc, err := loadFile(t, file, Options{})
			if err != nil {
				t.Fatalf("refused: %v", fields(problem.All(err)))
			}
			expectBlame(t, doc.Warnings, field, rule)
			_, err = loadFile(t, file, Options{Strict: true})
			expectBlame(t, problem.All(err), field, rule)
		})
	}
}

func expectBlame(t *testing.T, ps []*problem.Problem, field, rule string) {
	t.Helper()
	found := false
	for _, p := range ps {
		found = found || p.Field == field && p.Rule == rule
		if p.Line < 2 || p.Column < 1 {
			t.Errorf("%s has the place %s:%d:%d", p.Field, p.File, p.Line, p.Column)
		}
		if strings.Contains(p.Message+p.Hint+p.Got+p.Want, secretText) || strings.Contains(p.Message+p.Got, "20022002") {
			t.Errorf("a secret is repeated: %+v", p)
		}
	}
	if !found {
		t.Errorf("got %v, want %s by %s", fields(ps), field, rule)
	}
	if len(ps) > 2 {
		t.Errorf("one fault gave %d findings: %v", len(ps), fields(ps))
	}
}

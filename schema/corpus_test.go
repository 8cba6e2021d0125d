package schema

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// The documents in testdata/fleets are the project's shared fixtures/fleets: made for
// this corpus, each with the verdict of the reference implementation 0.7.0.

type document struct{ file, verdict, blamed, kind string }

func corpus(t testing.TB) []document {
	b, err := os.ReadFile("testdata/fleets/index.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []document
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		c := strings.Split(line, "\t")
		out = append(out, document{c[0], c[1], c[2], c[4]})
	}
	if len(out) != 147 {
		t.Fatalf("the corpus lists %d documents, want 147", len(out))
	}
	return out
}

func corpusEnv(t testing.TB) func(string) (string, bool) {
	b, err := os.ReadFile("testdata/fleets/environment")
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			vars[name] = value
		}
	}
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func loadFile(t testing.TB, file string, opt Options) (*Document, error) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Load(context.Background(), []Source{{filepath.Base(file), b}}, opt)
}

func fields(ps []*problem.Problem) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Rule+" "+p.Field+": "+p.Message)
	}
	return out
}

var anyIndex = regexp.MustCompile(`\[\d+\]`)

// names reports whether a problem blames the field; "[]" stands for any index.
func names(p *problem.Problem, blamed string) bool {
	if blamed == "(parse)" {
		return p.Rule == "syntax"
	}
	if strings.Contains(blamed, "[]") {
		return anyIndex.ReplaceAllString(p.Field, "[]") == blamed
	}
	return p.Field == blamed
}

func anyNames(ps []*problem.Problem, blamed string) bool {
	for _, p := range ps {
		if names(p, blamed) {
			return true
		}
	}
	return false
}

func TestCorpusVerdicts(t *testing.T) {
	env := corpusEnv(t)
	for _, d := range corpus(t) {
		t.Run(d.file, func(t *testing.T) {
			doc, err := loadFile(t, "testdata/fleets/"+d.file, Options{Env: env})
			if d.verdict == "accept" {
				if err != nil {
					t.Fatalf("refused: %v", fields(problem.All(err)))
				}
				if d.kind == "lenient" && !anyNames(doc.Warnings, d.blamed) {
					t.Errorf("no warning blames %s: %v", d.blamed, fields(doc.Warnings))
				}
				if d.kind == "valid" && len(doc.Warnings) > 0 {
					t.Errorf("warned: %v", fields(doc.Warnings))
				}
				return
			}
			ps := problem.All(err)
			if len(ps) == 0 {
				t.Fatalf("accepted, want %s blamed (%v)", d.blamed, err)
			}
			if !anyNames(ps, d.blamed) {
				t.Errorf("blames %v, want %s", fields(ps), d.blamed)
			}
			for _, p := range ps {
				if p.File != filepath.Base(d.file) || p.Line < 1 || p.Column < 1 {
					t.Errorf("%s has the place %s:%d:%d", p.Field, p.File, p.Line, p.Column)
				}
			}
			if max := allowed(d.file); len(ps) > max {
				t.Errorf("one fault gave %d errors: %v", len(ps), fields(ps))
			}
		})
	}
}

// allowed is how many errors one fault may give: two where two fields contradict.
func allowed(file string) int {
	if strings.Contains(file, "shared-gpu") || strings.Contains(file, "slo-key-typo") || strings.Contains(file, "credential-key-typo") {
		return 2
	}
	return 1
}

func TestCorpusStrict(t *testing.T) {
	env := corpusEnv(t)
	for _, d := range corpus(t) {
		doc, err := loadFile(t, "testdata/fleets/"+d.file, Options{Env: env, Strict: true})
		switch d.kind {
		case "valid":
			if err != nil {
				t.Errorf("%s: strict refuses a valid document: %v", d.file, fields(problem.All(err)))
			} else if len(doc.Warnings) > 0 {
				t.Errorf("%s: strict still warns", d.file)
			}
		case "lenient":
			if !anyNames(problem.All(err), d.blamed) {
				t.Errorf("%s: strict does not blame %s: %v", d.file, d.blamed, fields(problem.All(err)))
			}
		}
	}
}

func TestCorpusEffective(t *testing.T) {
	env := corpusEnv(t)
	for _, d := range corpus(t) {
		if d.verdict != "accept" {
			continue
		}
		doc, err := loadFile(t, "testdata/fleets/"+d.file, Options{Env: env})
		if err != nil {
			continue // TestCorpusVerdicts says so
		}
		b, err := os.ReadFile("testdata/fleets/effective/" + strings.TrimPrefix(d.file, "valid/"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Settings, Derived any }
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Settings, plain(t, doc.Fleet)); diff != "" {
			t.Errorf("%s: settings differ (-want +got):\n%s", d.file, diff)
		}
		if diff := cmp.Diff(want.Derived, plain(t, doc.Derived)); diff != "" {
			t.Errorf("%s: derived values differ (-want +got):\n%s", d.file, diff)
		}
	}
}

// plain turns a value into what encoding/json reads, numbers by value.
func plain(t testing.TB, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// An effective document loads again and means the same.
func TestEffectiveLoadsAgain(t *testing.T) {
	env := corpusEnv(t)
	for _, d := range corpus(t) {
		if d.verdict != "accept" {
			continue
		}
		doc, err := loadFile(t, "testdata/fleets/"+d.file, Options{Env: env})
		if err != nil {
			continue
		}
		b, err := json.Marshal(doc.Fleet)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(context.Background(), []Source{{"effective.json", b}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", d.file, fields(problem.All(err)))
		} else if again.Digest != doc.Digest {
			t.Errorf("%s: the digest changed", d.file)
		}
	}
}

package schema

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// FuzzLoad feeds hostile bytes in every format: no panic, and every error is a problem
// with a rule and a place inside the source.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/fleets/valid/*.json", "testdata/fleets/invalid/*.json", "testdata/deploy/*/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for i, name := range files {
			if i%9 == 0 {
				b, err := os.ReadFile(name)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b, uint8(i))
			}
		}
	}
	for _, s := range []string{"", "{", `{"a":[}`, "\ufeff{}", `{"a":1e999}`, "a: &a [*a]", "<<: [1]", "a: {<<: *x}", "x: x: x: 1", "_: !!binary x", `{"\ud800":1}`, "engines: [{url: 0x1F}]", "slo: ttft_s: >1", "a: a"} {
		for form := range uint8(3) {
			f.Add([]byte(s), form)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, form uint8) {
		name := []string{"x.json", "x.yaml", "x.cue"}[form%3]
		doc, err := Load(context.Background(), []Source{{name, data}}, Options{})
		if (doc == nil) == (err == nil) {
			t.Fatalf("got document %v and error %v", doc, err)
		}
		for _, p := range problem.All(err) {
			if p.Code == "invalid_fleet" && p.Rule == "" && p.Field == "" {
				continue
			}
			if p.Rule == "" || p.Line < 1 || p.Column < 1 || p.File != name {
				t.Fatalf("problem without rule or place: %+v", p)
			}
		}
	})
}

package presets

import (
	"context"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/schema"
)

func TestEveryPresetIsStrictlyValid(t *testing.T) {
	list := List()
	if len(list) < 5 {
		t.Fatalf("%d presets, want at least 5", len(list))
	}
	for _, p := range list {
		b, err := Show(p.Name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := schema.Load(context.Background(), []schema.Source{{Name: p.File, Data: b}}, schema.Options{Strict: true})
		for _, e := range problem.All(err) {
			t.Errorf("%s:%d:%d: %s (%s)", e.File, e.Line, e.Column, e.Message, e.Rule)
		}
		if err != nil {
			continue
		}
		if doc.Fleet.Deploy == nil {
			t.Errorf("%s has no deploy section", p.Name)
		}
		for _, e := range doc.Fleet.Engines {
			if _, err := doc.Fleet.Resolve(e.IID); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		if p.About == "" || !strings.HasPrefix(string(b), "// "+p.Name+": ") {
			t.Errorf("%s does not begin with its name and a sentence", p.Name)
		}
	}
	if list[0].Name != "sandbox" {
		t.Errorf("the list begins with %s", list[0].Name)
	}
}

func TestShowNamesThePresets(t *testing.T) {
	if _, err := Show("../presets"); err == nil || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("got %v, want an error that lists the presets", err)
	}
}

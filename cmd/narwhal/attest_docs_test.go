package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
)

// TestSidecarByHand: the example of gate E's page is a document that a sidecar takes, and every entry of its
// sources is needed.
func TestSidecarByHand(t *testing.T) {
	_, section, found := strings.Cut(readPage(t, "docs/gates/E.md"), "## A sidecar by hand")
	blocks := fenced.FindAllStringSubmatch(section, -1)
	if !found || len(blocks) < 2 || blocks[0][1] != "json" {
		t.Fatalf("no example in %.200q", section)
	}
	d, err := attest.ParseDocument([]byte(blocks[0][2]))
	if err != nil || d.Launch == nil || len(d.Sources) < 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	var tree map[string]any
	if err := json.Unmarshal([]byte(blocks[0][2]), &tree); err != nil {
		t.Fatal(err)
	}
	sources := tree["sources"].(map[string]any)
	var names []string
	for name := range d.Sources {
		names = append(names, name)
		text := sources[name]
		delete(sources, name)
		b, _ := json.Marshal(tree)
		if _, err := attest.ParseDocument(b); err == nil || !strings.Contains(err.Error(), "contract fields without a source: "+name+"; ") {
			t.Errorf("without the source of %s: %v", name, err)
		}
		sources[name] = text
	}
	slices.Sort(names)
	clear(sources)
	b, _ := json.Marshal(tree)
	if _, err := attest.ParseDocument(b); err == nil || !strings.Contains(err.Error(), "without a source: "+strings.Join(names, ", ")+"; ") {
		t.Errorf("without any source: %v", err)
	}
	for _, name := range names {
		sources[name] = "x"
	}
	tree["contract"].(map[string]any)["transfer_mode"] = ""
	delete(tree, "launch")
	b, _ = json.Marshal(tree)
	if _, err := attest.ParseDocument(b); err != nil {
		t.Errorf("an open field and no launch: %v", err)
	}
}

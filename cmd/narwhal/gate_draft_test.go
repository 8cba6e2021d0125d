package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDraft discovers hosts from a file that names nothing else, and the draft is a fleet
// file.
func TestDraft(t *testing.T) {
	w := newWorld(t, 2, nil)
	b, err := os.ReadFile(w.fleet)
	if err != nil {
		t.Fatal(err)
	}
	var full struct {
		Deploy struct {
			Hosts map[string]map[string]any `json:"hosts"`
			Sign  any                       `json:"sign"`
		} `json:"deploy"`
	}
	if err := json.Unmarshal(b, &full); err != nil {
		t.Fatal(err)
	}
	hosts, err := json.Marshal(map[string]any{"deploy": map[string]any{"name": "found", "hosts": full.Deploy.Hosts, "sign": full.Deploy.Sign}})
	if err != nil {
		t.Fatal(err)
	}
	file, draft := filepath.Join(filepath.Dir(w.fleet), "hosts.json"), filepath.Join(w.dir, "found.cue")
	if err := os.WriteFile(file, hosts, 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.must(0, w.run("gate", "run", "A", "-f", file, "--draft="+draft))
	if !strings.Contains(r.out, "wrote "+draft) || !strings.Contains(r.out, "fill in the name") {
		t.Errorf("says %q", r.out)
	}
	w.must(0, w.run("validate", draft))
	text, err := os.ReadFile(draft)
	if err != nil || !strings.Contains(string(text), "drafted from what gate A found on 2 hosts") {
		t.Errorf("%v: %s", err, text)
	}
	w.must(2, w.run("gate", "run", "A", "-f", file, "--draft="+draft))
	w.must(2, w.run("gate", "run", "B", "-f", file, "--draft="+draft+"2.cue"))
	w.must(2, w.run("gate", "run", "A", "-f", file, "--draft="+draft+".json"))
	w.must(2, w.run("gate", "run", "A", "-f", file))
}

package main

import (
	"strings"
	"testing"
)

// TestGatesOfSGLang takes engines that answer in pairs through all gates.
func TestGatesOfSGLang(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, func(doc map[string]any) {
		for _, name := range []string{"dialect", "connector"} {
			delete(doc["engine"].(map[string]any), name)
		}
		doc["engine"].(map[string]any)["backend"] = "sglang"
		sim := doc["deploy"].(map[string]any)["launch"].(map[string]any)["simulated"].(map[string]any)["simulated"].(map[string]any)
		sim["block_size"], sim["blocks"] = 1, 131072
	})
	r := w.must(0, w.gates())
	if got := w.reply(r).states(); got != allPassed {
		t.Fatalf("gates are %s: %s", got, r.err)
	}
	for _, note := range []string{"handoff-roles", "handoff-uncompared", "profile-lent"} {
		if !strings.Contains(r.out, `"`+note+`"`) {
			t.Errorf("nothing notes %s", note)
		}
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
}

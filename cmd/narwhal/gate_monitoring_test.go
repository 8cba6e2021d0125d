package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/serve"
)

// siteOf is a folder as another program left it: a version of files behind the link.
func siteOf(t *testing.T) (dir, version string) {
	t.Helper()
	dir, version = filepath.Join(t.TempDir(), "watch"), strings.Repeat("0", 64)
	at := filepath.Join(dir, "versions", version)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "prometheus.yml"), []byte("scrape_configs: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("versions", version), filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	return dir, version
}

// TestMonitoringThroughTheGates lets gate G install the files for a real Prometheus, look at what
// it sees, and put back what stood before.
func TestMonitoringThroughTheGates(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	dir, before := siteOf(t)
	prom := startPrometheus(t, filepath.Join(dir, "current", "prometheus.yml"))
	w := newWorld(t, 2, nil)
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["monitoring"] = map[string]any{"host": w.sbx.Hosts[1].ID, "prometheus": prom.at, "dir": dir, "reload": true}
	})
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	s := newest[serve.Watched](w, "G/monitoring")
	if s.Reason != "" || len(s.Routers) != 1 || len(s.Engines) != 2 || len(s.Listed) != 2 || s.Engines[0].Health != "up" || s.Rules["NarwhalEngineDown"] == "" {
		t.Errorf("%+v", s)
	}
	link, err := os.Readlink(filepath.Join(dir, "current"))
	if err != nil || link == filepath.Join("versions", before) {
		t.Errorf("current points to %s, %v", link, err)
	}
	if r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes")); !strings.Contains(r.out, "nothing to do") {
		t.Errorf("the second run says %s", tail(r.out))
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	if code, codes := independentlyIfThere(t, w.runDir(), filepath.Join(w.dir, "sbx", "keys", "operator.key.pub")); code != 0 {
		t.Errorf("the independent verifier says %d %v", code, codes)
	}
	t.Run("tunnel", func(t *testing.T) {
		cmd := w.command("tunnel", "-f", w.fleet)
		var out outputSoFar
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		await(t, "the tunnel to Prometheus", func() bool { return strings.Contains(out.String(), "prometheus http://127.0.0.1:") })
		_, at, _ := strings.Cut(out.String(), "prometheus http://")
		at, _, _ = strings.Cut(at, "\n")
		behind := prometheus{t, at}
		await(t, "Prometheus behind the tunnel", func() bool { return behind.health("engines")["up"] == 2 })
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tunnel ended with %v", err)
		}
	})
	t.Run("rollback", func(t *testing.T) {
		back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "F", "-f", w.fleet, "--yes", "--format", "json")))
		if !slices.ContainsFunc(back.Data.Restored, func(s string) bool { return strings.HasPrefix(s, "monitoring on ") }) || len(back.Data.Residue) != 0 {
			t.Errorf("restored %v, left %v", back.Data.Restored, back.Data.Residue)
		}
		if link, err := os.Readlink(filepath.Join(dir, "current")); err != nil || link != filepath.Join("versions", before) {
			t.Errorf("current points to %s, %v", link, err)
		}
		await(t, "Prometheus to read what stood before", func() bool { return len(prom.health("engines")) == 0 })
	})
}

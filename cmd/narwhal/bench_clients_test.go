//go:build clients

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// AIPerf's own models read what report --aiperf writes.
func TestAIPerfReadsOurFiles(t *testing.T) {
	dir := clientsDir(t)
	p, url, _ := servedBench(t)
	p.bench(0, "run", "--url", url, "--rate", "50", "--requests", "40", "--max-input", "100", "--max-output", "4", "--timeout", "2s", "--out", "run")
	p.bench(0, "report", "run", "--aiperf", "export")
	out, err := exec.Command(filepath.Join(dir, "bin", "python"), "../../internal/clients/aiperf_files.py", filepath.Join(p.dir, "export")).CombinedOutput()
	if want := "40 40 40 " + bench.AIPerfSchema + " " + bench.AIPerfSchema + "\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s, want %s", err, out, want)
	}
}

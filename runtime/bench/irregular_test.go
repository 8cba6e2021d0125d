package bench

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Evidence that is a pipe is refused instead of waited for.
func TestPipesAreNoEvidence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.jsonl")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readLinesFile[Row](path); err == nil {
		t.Error("a pipe was read")
	}
	if err := readJSON(path, new(int)); err == nil {
		t.Error("a pipe was read")
	}
	if f, err := openFile(filepath.Join(t.TempDir(), "absent")); !os.IsNotExist(err) {
		t.Error(f, err)
	}
}

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOneHoldsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	h, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Take(path); !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Fatalf("second: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file itself: %v", err)
	}
	h.Release()
	again, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

func TestNoHold(t *testing.T) {
	dir := t.TempDir()
	if _, err := Take(filepath.Join(dir, "absent", "state.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	path := filepath.Join(dir, "state.json")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path+".lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(path); err == nil {
		t.Error("a link was followed")
	}
}

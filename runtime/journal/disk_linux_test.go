package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestFullFileSystem fills a real one of 64 KiB and makes room again.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=65536"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, bytes.Repeat([]byte("x"), 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "j.jsonl")
	j, err := Open(path, "run", Meta{}, Options{backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40 // about 40 KiB
	for i := range n {
		if !j.Put(numbered(i)) {
			t.Fatal("lost")
		}
	}
	await(t, "a failure", func() bool { return j.Err() != nil })
	if !errors.Is(j.Err(), syscall.ENOSPC) {
		t.Error(j.Err())
	}
	if b, err := os.ReadFile(path); err != nil || len(b) > 0 && b[len(b)-1] != '\n' {
		t.Errorf("a torn line stays, %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, st, err := ReadRows(f)
	if err != nil || st.Bad > 0 || st.Torn {
		t.Fatalf("%+v, %v", st, err)
	}
	inOrder(t, rows, n)
}

package atomicfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWriteReplacesWholeFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	for _, text := range []string{"a longer first text", "short", ""} {
		if err := Write(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Fatalf("read %q, %v; want %q", got, err, text)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v; want 0640", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("folder holds %v, %v; want one file", entries, err)
	}
}

func TestWriteReplacesLinkNotTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); string(got) != "kept" {
		t.Fatalf("target became %q", got)
	}
	if got, _ := os.ReadFile(link); string(got) != "new" {
		t.Fatalf("link holds %q", got)
	}
}

func TestWriteFailureKeepsOldBytesAndLeavesNoTemp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Fatal("replaced a folder")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || IsTemp(entries[0].Name()) {
		t.Fatalf("folder holds %v", entries)
	}
	if err := Write(filepath.Join(dir, "missing", "f"), nil, 0o600); err == nil {
		t.Fatal("wrote into a missing folder")
	}
}

// Errors are the same each time: they name no temporary file.
func TestErrorsNameNoTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "f"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "f"), filepath.Join(dir, "missing", "f")} {
		a, b := Write(path, nil, 0o600), Write(path, nil, 0o600)
		if a == nil || b == nil || a.Error() != b.Error() || strings.Contains(a.Error(), tempMark) {
			t.Errorf("%v; %v", a, b)
		}
	}
}

// Sweep takes what a killed writer of this file left, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	stays := []string{".atomic-12", ".atomic-f-", ".atomic-f-x-3", ".atomic-f-3x", ".atomic-g-3", "f", "f-3"}
	for _, name := range append([]string{".atomic-f-3", ".atomic-f-44"}, stays...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(filepath.Join(dir, "f"))
	left, err := os.ReadDir(dir)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	slices.Sort(stays)
	if err != nil || !slices.Equal(names, stays) {
		t.Errorf("left %q, %v", names, err)
	}
}

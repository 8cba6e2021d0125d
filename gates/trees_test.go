package gates

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTreesFact changes with each file's name, size, time and inode, and with nothing else.
func TestTreesFact(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, time.Unix(9, 0), time.Unix(9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "1")
	write("sub/b", "22")
	if err := os.Symlink("..", filepath.Join(dir, "sub", "up")); err != nil { // a loop ends
		t.Fatal(err)
	}
	if err := os.Symlink("/none", filepath.Join(dir, "dead")); err != nil {
		t.Fatal(err)
	}
	look := func() string { return TreesFact([]string{dir}) }
	was := look()
	for _, same := range []string{"README.md", ".cache/huggingface/x"} {
		if write(same, "x"); look() != was {
			t.Errorf("%s counts", same)
		}
	}
	for name, change := range map[string]func(){
		"size":  func() { write("a", "12") },
		"time":  func() { _ = os.Chtimes(filepath.Join(dir, "sub/b"), time.Unix(10, 0), time.Unix(10, 0)) },
		"name":  func() { _ = os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")) },
		"inode": func() { _ = os.Rename(filepath.Join(dir, "sub/b"), filepath.Join(dir, "old")); write("sub/b", "22") },
	} {
		before := look()
		if change(); look() == before {
			t.Errorf("another %s is not seen", name)
		}
	}
	if TreesFact([]string{dir + "/none"}) == look() || TreesFact(nil) != TreesFact([]string{}) {
		t.Error("absent folders look like this one")
	}
}

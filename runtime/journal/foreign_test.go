package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file that is no journal is refused and stays as it is.
func TestForeignFilesAreNotTouched(t *testing.T) {
	for name, text := range map[string]string{"notes": "important\nlast line without newline", "json": `{"schema":"narwhal.fleet","model":"x"}`, "empty line": "\n"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(path); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%s is now %q", name, b)
		}
	}
	for name, text := range map[string]string{"empty": "", "torn": `{"met`, "reference": `{"meta": {"schema": "narwhal.journal", "schema_version": 1}}` + "\n"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Take(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		h.Release()
	}
}

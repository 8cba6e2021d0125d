package remote

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

// TestPutRunsNothingUnproven looks, when the host computes the digest, at the mode of what
// was sent.
func TestPutRunsNothingUnproven(t *testing.T) {
	tools, log := t.TempDir(), filepath.Join(t.TempDir(), "modes")
	script := "#!/bin/sh\nPATH=${PATH#*:}\nstat -L -c %a /proc/self/fd/0 >>" + log + "\nexec sha256sum\n"
	if err := os.WriteFile(filepath.Join(tools, "sha256sum"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}, Env: []string{"PATH=" + tools + ":" + os.Getenv("PATH")}})
	h := connect(t, Options{}, hopTo(s, "alpha", path))
	f := fileOf(filepath.Join(s.Root(), "program"), content(1<<16))
	f.Mode = 0o755
	if _, err := h.Put(limited(t), f); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(log); err != nil || string(got) != "600\n" {
		t.Errorf("modes while the digest was computed: %q, %v", got, err)
	}
	if info, err := os.Stat(f.Path); err != nil || info.Mode() != 0o755 {
		t.Errorf("afterwards: %v, %v", info, err)
	}
}

// TestPutKeepMode leaves a file that is there as it is, and gives a new one its mode.
func TestPutKeepMode(t *testing.T) {
	s, h := one(t, Options{})
	f := fileOf(filepath.Join(s.Root(), "program"), content(1<<10))
	f.KeepMode = true
	for _, mode := range []fs.FileMode{0o644, 0o755} { // as sent, then as somebody set it
		if mode != f.Mode {
			if err := os.Chmod(f.Path, mode); err != nil {
				t.Fatal(err)
			}
		}
		w, err := h.Put(limited(t), f)
		info, _ := os.Stat(f.Path)
		if err != nil || w.Skipped != (mode != f.Mode) || info.Mode() != mode {
			t.Errorf("%v: %+v, %v, %v", mode, w, info, err)
		}
	}
}

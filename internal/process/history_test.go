package process

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func launches(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, DirLaunches, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestLaunchesAreKept leaves one read-only file a launch, and none for an adoption.
func TestLaunchesAreKept(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, "e", "l", forever)
	spec := Spec{Name: "e", Launch: "l", Argv: []string{"sh", "-c", forever, "sh", dir}}
	if r.SpecDigest != spec.Digest() || r.SpecDigest != r.Spec.Digest() {
		t.Errorf("digest %s, want %s", r.SpecDigest, spec.Digest())
	}
	if _, adopted, err := Start(limited(t), dir, spec, become(t)); err != nil || !adopted {
		t.Fatalf("adopted: %t, %v", adopted, err)
	}
	files := launches(t, dir)
	if len(files) != 1 {
		t.Fatalf("%d launches", len(files))
	}
	st, err := os.Stat(files[0])
	if err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	b, err := os.ReadFile(files[0])
	var kept Record
	if err != nil || json.Unmarshal(b, &kept) != nil || kept.Identity != r.Identity || kept.SpecDigest != r.SpecDigest {
		t.Errorf("kept %s, %v", b, err)
	}
	if _, err := Stop(limited(t), dir, "e", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	start(t, dir, "e", "l2", forever)
	if n := len(launches(t, dir)); n != 2 {
		t.Errorf("%d launches after another start", n)
	}
	if got := List(dir); len(got) != 1 {
		t.Errorf("records %+v", got)
	}
}

// TestOldLaunchesGo keeps the newest of each name.
func TestOldLaunchesGo(t *testing.T) {
	dir := t.TempDir()
	for i := range keepLaunches + 5 {
		for _, name := range []string{"e", "e-2"} {
			r := Record{Spec: Spec{Name: name}, Identity: Identity{PID: i}, Started: time.Unix(int64(1000+i), 0)}
			if err := remember(dir, r); err != nil {
				t.Fatal(err)
			}
			if err := remember(dir, r); !os.IsExist(err) {
				t.Fatalf("a launch was written twice: %v", err)
			}
		}
	}
	files := launches(t, dir)
	if len(files) != 2*keepLaunches || strings.Contains(strings.Join(files, " "), "-4-0-") {
		t.Errorf("%d launches", len(files))
	}
}

// TestBefore runs before a start, not before an adoption, and a failure starts nothing.
func TestBefore(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	spec := Spec{Name: "e", Launch: "l", Argv: []string{"sh", "-c", forever, "sh", dir}, Before: []string{"sh", "-c", `echo x >>"$0"`, mark}}
	r, _, err := Start(limited(t), dir, spec, become(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Stop(context.WithoutCancel(t.Context()), dir, "e", time.Second) })
	if _, adopted, err := Start(limited(t), dir, spec, become(t)); err != nil || !adopted {
		t.Fatalf("adopted: %t, %v", adopted, err)
	}
	if b, _ := os.ReadFile(mark); string(b) != "x\n" {
		t.Errorf("it ran %q", b)
	}
	if r.LogFrom != 0 {
		t.Errorf("the log begins at %d", r.LogFrom)
	}
	spec.Name, spec.Before = "f", []string{"sh", "-c", "echo the daemon is down; exit 3"}
	if _, _, err := Start(limited(t), dir, spec, become(t)); err == nil || !strings.Contains(err.Error(), "the daemon is down") {
		t.Errorf("started all the same: %v", err)
	}
	if _, ok := Read(dir, "f"); ok {
		t.Error("it has a record")
	}
}

// TestLogFrom says where the log of each launch begins.
func TestLogFrom(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "e.log"), []byte("of before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := start(t, dir, "e", "l", forever); r.LogFrom != int64(len("of before\n")) {
		t.Errorf("the log begins at %d", r.LogFrom)
	}
}

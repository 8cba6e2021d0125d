package record

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestVerifyNamesEveryChangedByte(t *testing.T) {
	r := create(t)
	fill(t, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	dir := r.Dir()
	if rep := mustVerify(t, dir); len(rep.Problems) > 0 || rep.Objects != 4 || len(rep.Seals) != 1 || !rep.Seals[0].Current {
		t.Fatalf("unchanged: %+v", rep)
	}
	flipped := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		good := mustRead(t, path)
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			mustWrite(t, path, bad)
			if rep := mustVerify(t, dir); len(rep.Problems) == 0 {
				t.Errorf("%s: byte %d changed from %q to %q unnoticed", d.Name(), i, good[i], bad[i])
			}
			flipped++
		}
		mustWrite(t, path, good)
		return nil
	})
	if err != nil || flipped < 1000 {
		t.Fatalf("%d bytes flipped, %v", flipped, err)
	}
}

func TestVerifyNamesWhatDoesNotBelong(t *testing.T) {
	r := create(t)
	fill(t, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	snap, err := Read(r.Dir())
	if err != nil {
		t.Fatal(err)
	}
	entry, _ := snap.State.Evidence("A/host/h1")
	object := filepath.Join(ObjectDir, entry.Ref.SHA256)
	orphan := filepath.Join(ObjectDir, digestOf([]byte("orphan")))
	cases := map[string]struct {
		do   func(dir string) error
		code string
		file string
	}{
		"object missing":    {func(d string) error { return os.Remove(filepath.Join(d, object)) }, ProblemMissing, object},
		"object is a link":  {func(d string) error { return relink(filepath.Join(d, object)) }, ProblemFile, object},
		"object is a pipe":  {func(d string) error { return repipe(filepath.Join(d, object)) }, ProblemFile, object},
		"log is a pipe":     {func(d string) error { return repipe(filepath.Join(d, LogFile)) }, ProblemLog, LogFile},
		"log missing":       {func(d string) error { return os.Remove(filepath.Join(d, LogFile)) }, ProblemLog, LogFile},
		"log empty":         {func(d string) error { return os.Truncate(filepath.Join(d, LogFile), 0) }, ProblemLog, LogFile},
		"objects gone":      {func(d string) error { return os.RemoveAll(filepath.Join(d, ObjectDir)) }, ProblemMissing, object},
		"unknown file":      {func(d string) error { return touch(filepath.Join(d, "notes\x1b[2J")) }, ProblemUnknown, "notes?[2J"},
		"unknown seal":      {func(d string) error { return touch(filepath.Join(d, SealDir, "B.sigstore.json")) }, ProblemUnknown, "seals/B.sigstore.json"},
		"unknown object":    {func(d string) error { return touch(filepath.Join(d, ObjectDir, "readme")) }, ProblemUnknown, "objects/readme"},
		"orphan, not equal": {func(d string) error { return touch(filepath.Join(d, orphan)) }, ProblemDigest, orphan},
		"unknown torn file": {func(d string) error { return touch(filepath.Join(d, "torn-9.bin")) }, ProblemUnknown, "torn-9.bin"},
		"seal missing":      {func(d string) error { return os.Remove(filepath.Join(d, SealDir, "A.sigstore.json")) }, ProblemMissing, "seals/A.sigstore.json"},
		"objects is a link": {func(d string) error { return moveAndLink(filepath.Join(d, ObjectDir)) }, ProblemUnknown, ObjectDir},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := copyRun(t, r.Dir())
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
			rep := mustVerify(t, dir)
			for _, p := range rep.Problems {
				if p.Code == c.code && p.File == c.file {
					return
				}
			}
			t.Fatalf("problems %+v; want %s at %s", rep.Problems, c.code, c.file)
		})
	}
}

func TestVerifyTakesHarmlessLeftoversAsNotices(t *testing.T) {
	r := create(t)
	fill(t, r)
	if _, err := r.Store("text/plain", []byte("orphan")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{".", ObjectDir, SealDir} {
		if err := touch(filepath.Join(r.Dir(), d, ".atomic-12")); err != nil {
			t.Fatal(err)
		}
	}
	if rep := mustVerify(t, r.Dir()); len(rep.Problems) > 0 || len(rep.Notices) != 4 {
		t.Fatalf("problems %+v, notices %+v", rep.Problems, rep.Notices)
	}
	_ = r.Close()
	again, err := Open(r.Dir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if rep := mustVerify(t, r.Dir()); len(rep.Notices) != 1 || rep.Notices[0].Code != NoticeOrphan {
		t.Fatalf("notices after open %+v", rep.Notices)
	}
}

func TestSealMustNameALineOfTheLog(t *testing.T) {
	r := create(t)
	seq, digest := r.Head()
	if _, err := r.Seal("A", seq, strings.Repeat("0", 64), []byte("{}")); err == nil {
		if rep := mustVerify(t, r.Dir()); len(rep.Problems) != 1 || rep.Problems[0].Code != ProblemSeal {
			t.Fatalf("problems %+v", rep.Problems)
		}
	} else {
		t.Fatal(err)
	}
	if _, err := r.Seal("../A", seq, digest, []byte("{}")); err == nil {
		t.Fatal("sealed outside of the folder")
	}
}

func TestOpenRestoresMirrorsButNotChangedOnes(t *testing.T) {
	r := create(t)
	fill(t, r)
	file := filepath.Join(r.Dir(), SealDir, "A.sigstore.json")
	first := mustRead(t, file)
	seq, digest := r.Head()
	if _, err := r.Seal("A", seq, digest, []byte(`{"second":1}`)); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	for _, c := range []struct{ name, found, want string }{
		{"an older seal", string(first), `{"second":1}`},
		{"the current one", `{"second":1}`, `{"second":1}`},
		{"a changed one", `{"second":2}`, `{"second":2}`},
		{"none", "", `{"second":1}`},
	} {
		mustWrite(t, file, []byte(c.found))
		if c.found == "" {
			_ = os.Remove(file)
		}
		again, err := Open(r.Dir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Close()
		if got := string(mustRead(t, file)); got != c.want {
			t.Fatalf("%s: holds %s; want %s", c.name, got, c.want)
		}
	}
}

func touch(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }

func relink(path string) error {
	if err := os.Rename(path, path+".moved"); err != nil {
		return err
	}
	return os.Symlink(path+".moved", path)
}

func repipe(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return syscall.Mkfifo(path, 0o600)
}

func moveAndLink(path string) error {
	other := filepath.Join(filepath.Dir(filepath.Dir(path)), "elsewhere")
	if err := os.Rename(path, other); err != nil {
		return err
	}
	return os.Symlink(other, path)
}

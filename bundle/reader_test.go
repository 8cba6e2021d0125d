package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func problemsOf(t *testing.T, archive []byte) []Problem {
	t.Helper()
	r, err := NewReader(bytes.NewReader(archive), int64(len(archive)))
	if errors.Is(err, ErrDamaged) {
		return []Problem{{Code: ProblemArchive, Message: err.Error()}}
	}
	if err != nil {
		t.Fatal(err)
	}
	problems, err := r.Verify()
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func TestVerifyNamesWhatDoesNotHold(t *testing.T) {
	a, b := packedFile{path: "a.txt", body: "alpha"}, packedFile{path: "b.txt", body: "beta"}
	good := manifestOf(a, b)
	changed := func(m *Manifest, f func(*Manifest)) *Manifest {
		c := *m
		c.Entries = append([]Entry{}, m.Entries...)
		f(&c)
		return &c
	}
	link := func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, "/etc/passwd", 0 }
	for _, c := range []struct {
		name    string
		archive []byte
		code    string
		path    string
	}{
		{"nothing", packed(t, good, a, b), "", ""},
		{"changed bytes", packed(t, good, a, packedFile{path: "b.txt", body: "bet4"}), ProblemDigest, "b.txt"},
		{"longer", packed(t, good, a, packedFile{path: "b.txt", body: "beta!"}), ProblemDigest, "b.txt"},
		{"a file too few", packed(t, good, b), ProblemAbsent, "a.txt"},
		{"a file too many", packed(t, good, a, b, packedFile{path: "c.txt"}), ProblemUnknown, "c.txt"},
		{"a file twice", packed(t, good, a, b, b), ProblemUnknown, "b.txt"},
		{"a second manifest", packed(t, good, a, b, packedFile{path: ManifestFile, body: "{}"}), ProblemUnknown, ManifestFile},
		{"upwards", packed(t, manifestOf(packedFile{path: "../x"}), packedFile{path: "../x"}), ProblemPath, "../x"},
		{"inside upwards", packed(t, manifestOf(packedFile{path: "a/../../x"}), packedFile{path: "a/../../x"}), ProblemPath, "a/../../x"},
		{"absolute", packed(t, manifestOf(packedFile{path: "/x"}), packedFile{path: "/x"}), ProblemPath, "/x"},
		{"a link", packed(t, manifestOf(packedFile{path: "l"}), packedFile{path: "l", change: link}), ProblemHeader, "l"},
		{"an owner", packed(t, good, a, packedFile{path: "b.txt", body: "beta", change: func(h *tar.Header) { h.Uid = 1 }}), ProblemHeader, "b.txt"},
		{"a comment", packed(t, good, a, packedFile{path: "b.txt", body: "beta", change: func(h *tar.Header) { h.PAXRecords = map[string]string{"comment": "x"} }}), ProblemHeader, "b.txt"},
		{"a name twice", packed(t, manifestOf(a, a), a), ProblemManifest, "a.txt"},
		{"a wrong count", packed(t, changed(good, func(m *Manifest) { m.Redactions = 5 }), a, b), ProblemManifest, ManifestFile},
		{"no digest", packed(t, changed(good, func(m *Manifest) { m.Entries[0].SHA256 = "x" }), a, b), ProblemManifest, "a.txt"},
		{"no manifest", packed(t, nil, a), ProblemArchive, ""},
		{"a manifest that is second", packed(t, nil, a, packedFile{path: ManifestFile, body: "{}"}), ProblemArchive, ""},
		{"bytes behind", append(packed(t, good, a, b), 'x'), ProblemArchive, ""},
		{"an archive behind", append(packed(t, good, a, b), packed(t, good, a, b)...), ProblemArchive, ""},
		{"bytes in the padding", repacked(t, packed(t, good, a, b), func(b []byte) []byte { b[bytes.Index(b, []byte("alpha"))+9] = 'x'; return b }), ProblemArchive, ""},
		{"bytes behind the tar", repacked(t, packed(t, good, a, b), func(b []byte) []byte { return append(b, "hidden"...) }), ProblemArchive, ""},
		{"zeros behind the tar", repacked(t, packed(t, good, a, b), func(b []byte) []byte { return append(b, make([]byte, 4096)...) }), ProblemArchive, ""},
		{"not gzip", []byte("hello, this is no archive at all"), ProblemArchive, ""},
		{"empty", nil, ProblemArchive, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := problemsOf(t, c.archive)
			if c.code == "" {
				if len(got) > 0 {
					t.Errorf("problems: %v", got)
				}
				return
			}
			for _, p := range got {
				if p.Code == c.code && p.Path == c.path {
					return
				}
			}
			t.Errorf("problems %v lack %s %s", got, c.code, c.path)
		})
	}
}

// repacked changes the bytes below the compression.
func repacked(t *testing.T, archive []byte, change func([]byte) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	_, err := zip.Write(change(unpacked(t, archive)))
	if err = errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever byte below the compression changes, Verify says so.
func TestEveryByteCounts(t *testing.T) {
	src := healthy(t).source()
	src.RunDir = testRun(t)
	_, archive := collect(t, src)
	plain := unpacked(t, archive)
	for i := 0; i < len(plain); i += 307 {
		bad := repacked(t, archive, func(b []byte) []byte { b[i] ^= 0x10; return b })
		r, err := NewReader(bytes.NewReader(bad), int64(len(bad)))
		if err != nil {
			continue
		}
		if problems, err := r.Verify(); err == nil && len(problems) == 0 {
			if bytes.Contains(r.head, []byte{plain[i] ^ 0x10}) && i < 512+len(r.head) {
				continue // free text of the manifest itself: only the archive's digest covers it
			}
			t.Errorf("byte %d of %d changed unseen", i, len(plain))
		}
	}
}

func TestTruncatedArchives(t *testing.T) {
	_, archive := collect(t, healthy(t).source())
	for n := 0; n < len(archive); n += 1 + len(archive)/150 {
		if got := problemsOf(t, archive[:n]); len(got) == 0 {
			t.Errorf("the first %d of %d bytes verify", n, len(archive))
		}
	}
}

func TestBombIsBounded(t *testing.T) {
	a := packedFile{path: "a", body: strings.Repeat("\x00", 4<<20)}
	archive := packed(t, manifestOf(a), a)
	r := reader(t, archive)
	r.unpack = 1 << 20
	problems, err := r.Verify()
	if err != nil || len(problems) == 0 || !strings.Contains(problems[0].Message, "unpacks to more") {
		t.Errorf("%v %v", problems, err)
	}
	if _, err := r.File("a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("file of a bomb: %v", err)
	}
}

// A sparse file is gigabytes of zeros that stand in no byte of the archive.
func TestSparseFileIsRefused(t *testing.T) {
	block := make([]byte, 512)
	for at, field := range map[int]string{
		0: "sparse", 100: "0000644", 108: "0000000", 116: "0000000", 124: "00000000000", 136: "00000000000", 148: "        ", 156: "S",
		257: "ustar  ", 386: "77777777777", 398: "00000000000", 483: "77777777777",
	} {
		copy(block[at:], field)
	}
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	sparse := packedFile{path: "sparse"}
	archive := repacked(t, packed(t, manifestOf(sparse)), func(b []byte) []byte { return append(append(b[:len(b)-1024], block...), make([]byte, 1024)...) })
	problems := problemsOf(t, archive)
	if len(problems) == 0 || !strings.Contains(problems[0].Message, "sparse") {
		t.Errorf("problems: %v", problems)
	}
	if _, err := reader(t, archive).File("sparse"); !errors.Is(err, ErrDamaged) {
		t.Errorf("file: %v", err)
	}
}

func TestFileIsProvedAgainstTheManifest(t *testing.T) {
	a := packedFile{path: "a", body: "alpha"}
	r := reader(t, packed(t, manifestOf(a), packedFile{path: "a", body: "alphA"}))
	if _, err := r.File("a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("changed bytes were handed out: %v", err)
	}
	if _, err := r.File("b"); !errors.Is(err, ErrNoEntry) {
		t.Errorf("unknown file: %v", err)
	}
	if _, err := reader(t, packed(t, manifestOf(a))).File("a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("absent file: %v", err)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "b.tar.gz")
	if err := os.WriteFile(name, packed(t, manifestOf()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Open(bad); err == nil || errors.Is(err, ErrDamaged) {
			t.Errorf("open %s: %v", bad, err)
		}
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) {
	return 0, &os.PathError{Op: "read", Path: "x", Err: io.ErrNoProgress}
}

func TestUnreadableFileIsNoDamage(t *testing.T) {
	if _, err := NewReader(failing{}, 100); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

func FuzzReader(f *testing.F) {
	var t testing.T
	a := packedFile{path: "a.txt", body: "alpha"}
	f.Add(unpacked(&t, packed(&t, manifestOf(a), a)))
	f.Add(unpacked(&t, packed(&t, manifestOf(), packedFile{path: "../x", body: "y"})))
	f.Fuzz(func(t *testing.T, plain []byte) {
		var b bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&b, gzip.NoCompression)
		_, _ = zip.Write(plain)
		_ = zip.Close()
		r, err := NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			return
		}
		problems, err := r.Verify()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Manifest().Entries {
			if body, err := r.File(e.Path); len(problems) == 0 && (err != nil || digestOf(body) != e.SHA256) {
				t.Fatalf("%s of a bundle that verifies: %v", e.Path, err)
			}
		}
	})
}

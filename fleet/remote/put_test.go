package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

func fileOf(path string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Path: path, Mode: 0o644, SHA256: hex.EncodeToString(sum[:]), Open: func() (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(content)), int64(len(content)), nil
	}}
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestPut(t *testing.T) {
	s, h := one(t, Options{})
	path := filepath.Join(s.Root(), "release 'x'")
	data := content(1 << 20)
	f := fileOf(path, data)
	f.Mode = 0o755
	w, err := h.Put(limited(t), f)
	if err != nil || w.Sent != int64(len(data)) || w.Skipped {
		t.Fatalf("%+v %v", w, err)
	}
	check := func(want []byte, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || !bytes.Equal(got, want) || info.Mode() != mode {
			t.Errorf("%d bytes %v %v", len(got), info.Mode(), err)
		}
		if n := names(t, s.Root()); len(n) != 1 {
			t.Errorf("left behind: %v", n)
		}
	}
	check(data, 0o755)
	if w, err = h.Put(limited(t), f); err != nil || w.Sent != 0 || !w.Skipped {
		t.Errorf("again: %+v %v", w, err)
	}
	f.Mode = 0o600
	if w, err = h.Put(limited(t), f); err != nil || !w.Skipped {
		t.Errorf("other mode: %+v %v", w, err)
	}
	check(data, 0o600)
	// Same size, other bytes: replaced, although a plain rename would refuse.
	other := bytes.Clone(data)
	other[77]++
	if w, err = h.Put(limited(t), fileOf(path, other)); err != nil || w.Skipped {
		t.Errorf("other content: %+v %v", w, err)
	}
	check(other, 0o644)
	if w, err = h.Put(limited(t), fileOf(path, nil)); err != nil {
		t.Errorf("empty: %+v %v", w, err)
	}
	check(nil, 0o644)
	g := fileOf(path, data)
	g.SHA256 = ""
	if w, err = h.Put(limited(t), g); err != nil || w.SHA256 != f.SHA256 {
		t.Errorf("without digest: %+v %v", w, err)
	}
}

func TestPutFolders(t *testing.T) {
	s, h := one(t, Options{})
	f := fileOf(filepath.Join(s.Root(), "a/b/c"), []byte("x"))
	if _, err := h.Put(limited(t), f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	f.Parents = true
	if _, err := h.Put(limited(t), f); err != nil {
		t.Error(err)
	}
	if _, err := h.Put(limited(t), fileOf(filepath.Join(s.Root(), "a"), []byte("x"))); err == nil {
		t.Error("a folder was replaced")
	}
	var refused *CommandError
	if _, err := h.Put(limited(t), fileOf("relative", nil)); !errors.As(err, &refused) {
		t.Error(err)
	}
}

func TestPutChangedSource(t *testing.T) {
	s, h := one(t, Options{})
	f := fileOf(filepath.Join(s.Root(), "x"), []byte("content"))
	f.SHA256 = fileOf("", []byte("other")).SHA256
	_, err := h.Put(limited(t), f)
	var digest *DigestError
	if !errors.As(err, &digest) || len(names(t, s.Root())) > 0 {
		t.Errorf("%v %v", err, names(t, s.Root()))
	}
}

// hookReader calls at before it gives the bytes from an offset on.
type hookReader struct {
	io.Reader
	left int64
	at   func() error
}

func (r *hookReader) Read(b []byte) (int, error) {
	if r.left <= 0 && r.at != nil {
		at := r.at
		r.at = nil
		if err := at(); err != nil {
			return 0, err
		}
	}
	n, err := r.Reader.Read(b)
	r.left -= int64(n)
	return n, err
}

func hooked(f File, after int64, at func() error) File {
	open := f.Open
	f.Open = func() (io.ReadCloser, int64, error) {
		r, n, err := open()
		return io.NopCloser(&hookReader{Reader: r, left: after, at: at}), n, err
	}
	return f
}

func TestPutWithoutSpace(t *testing.T) {
	s, h := one(t, Options{})
	f := fileOf(filepath.Join(s.Root(), "big"), content(4<<20))
	t.Run("known before", func(t *testing.T) {
		s.FillAfter(1 << 20)
		w, err := h.Put(limited(t), f)
		var full *NoSpaceError
		if !errors.As(err, &full) || full.Need != 4<<20 || full.Free > 1<<20 || w.Sent != 0 || Hint(err) == "" {
			t.Errorf("%+v %v", w, err)
		}
	})
	t.Run("while writing", func(t *testing.T) {
		s.FillAfter(-1)
		w, err := h.Put(limited(t), hooked(f, 1<<20, func() error { s.FillAfter(100_000); return nil }))
		var full *NoSpaceError
		if !errors.As(err, &full) || full.Err == nil || w.Sent == 0 {
			t.Errorf("%+v %v", w, err)
		}
	})
	if n := names(t, s.Root()); len(n) > 0 {
		t.Errorf("left behind: %v", n)
	}
	s.FillAfter(-1)
	if _, err := h.Put(limited(t), f); err != nil {
		t.Error(err)
	}
}

func TestPutFailsAndCleansUp(t *testing.T) {
	s, h := one(t, Options{})
	f := fileOf(filepath.Join(s.Root(), "big"), content(4<<20))
	bad := errors.New("the disk here is broken")
	if _, err := h.Put(limited(t), hooked(f, 1<<20, func() error { return bad })); !errors.Is(err, bad) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	if _, err := h.Put(ctx, hooked(f, 1<<20, func() error { cancel(); return nil })); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := names(t, s.Root()); len(n) > 0 {
		t.Errorf("left behind: %v", n)
	}
}

// What a cut upload left goes with the next whole one, also of other content, and nothing else does.
func TestPutRemovesParts(t *testing.T) {
	s, h := one(t, Options{})
	path := filepath.Join(s.Root(), "f")
	part := filepath.Join(s.Root(), ".narwhal-f.0123456789abcdef.part")
	kept := []string{".narwhal-f.0123.part", ".narwhal-f2.0123456789abcdef.part", ".narwhal-g.0123456789abcdef.part", "f"}
	for _, n := range kept[:3] {
		if err := os.WriteFile(filepath.Join(s.Root(), n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, skipped := range []bool{false, true} {
		if err := os.WriteFile(part, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if w, err := h.Put(limited(t), fileOf(path, content(10))); err != nil || w.Skipped != skipped {
			t.Fatalf("%+v %v", w, err)
		}
		if n := names(t, s.Root()); !slices.Equal(n, kept) {
			t.Errorf("there are %v, want %v", n, kept)
		}
	}
}

func TestPutResumes(t *testing.T) {
	for name, spoil := range map[string]bool{"sound part": false, "spoiled part": true} {
		t.Run(name, func(t *testing.T) {
			key, id := userKey(t)
			s := serve(t, loopback.Config{Authorized: []string{key.Public}})
			h := connect(t, Options{}, hopTo(s, "alpha", id))
			data := content(12 << 20)
			f := fileOf(filepath.Join(s.Root(), "big"), data)
			part := partName(f)
			_, err := h.Put(limited(t), hooked(f, 10<<20, func() error {
				eventually(t, "9 MiB on the host", func() bool {
					info, err := os.Stat(part)
					return err == nil && info.Size() >= 9<<20
				})
				s.Drop()
				return nil
			}))
			var lost *LostError
			if !errors.As(err, &lost) {
				t.Fatal(err)
			}
			if spoil {
				p, err := os.OpenFile(part, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.WriteAt(make([]byte, 1000), 100); err != nil {
					t.Fatal(err)
				}
				_ = p.Close()
			}
			h = connect(t, Options{}, hopTo(s, "alpha", id))
			w, err := h.Put(limited(t), f)
			if err != nil || (w.Resumed > 0) == spoil || w.Sent == 0 || (!spoil && w.Sent > 8<<20) {
				t.Errorf("%+v %v", w, err)
			}
			if got, _ := os.ReadFile(f.Path); !bytes.Equal(got, data) || len(names(t, s.Root())) != 1 {
				t.Errorf("%d bytes, %v", len(got), names(t, s.Root()))
			}
		})
	}
}

func TestGet(t *testing.T) {
	s, h := one(t, Options{})
	path := filepath.Join(s.Root(), "f")
	if err := os.WriteFile(path, content(100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := h.Get(limited(t), path, 100_000)
	if err != nil || !bytes.Equal(got, content(100_000)) {
		t.Fatal(len(got), err)
	}
	var large *TooLargeError
	if got, err = h.Get(limited(t), path, 99_999); !errors.As(err, &large) || got != nil {
		t.Error(len(got), err)
	}
	if _, err = h.Get(limited(t), path+"x", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got, err = h.Get(limited(t), "/proc/self/stat", 4096); err != nil || len(got) == 0 {
		t.Errorf("%q %v", got, err)
	}
}

func TestDigestFallsBackToReading(t *testing.T) {
	s, h := one(t, Options{})
	path := filepath.Join(s.Root(), "f")
	data := content(300_000)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := h.readBack(limited(t), path)
	if want := fileOf("", data).SHA256; err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

func FuzzParseDigest(f *testing.F) {
	f.Add([]byte("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  -\n"))
	f.Add([]byte("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 *stdin\n"))
	f.Add([]byte("e3b0"))
	f.Fuzz(func(t *testing.T, out []byte) {
		got, err := parseDigest(out)
		if err == nil && (len(got) != 64 || !bytes.EqualFold([]byte(got), out[:64])) {
			t.Errorf("%q became %q", out, got)
		}
	})
}

package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Codes of a Problem.
const (
	ProblemArchive  = "archive"  // the archive cannot be read to its end, or holds more than files
	ProblemManifest = "manifest" // the manifest contradicts itself
	ProblemPath     = "path"     // a path that is not plain and relative
	ProblemHeader   = "header"   // no plain file: a link, a device, an owner, a time
	ProblemDigest   = "digest"   // bytes that the manifest does not name
	ProblemAbsent   = "absent"   // a file that the manifest names is not there
	ProblemUnknown  = "unknown"  // a file that the manifest does not name
)

// Problem is one thing that does not hold.
type Problem struct {
	Code    string `json:"code"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

const maxProblems = 1000

type verifier struct {
	want     map[string]Entry
	seen     map[string]bool
	problems []Problem
	// again receives the archive as a collection would write the files that were found; their
	// digests are equal unless bytes hide between them.
	again  *tar.Writer
	digest hash.Hash
}

func (v *verifier) problem(code, path, format string, args ...any) {
	if len(v.problems) < maxProblems {
		v.problems = append(v.problems, Problem{code, printable(path), fmt.Sprintf(format, args...)})
	}
}

// Verify reads the whole archive and names everything that does not hold: each file of the
// manifest is there once with its length and digest, nothing else is, and paths and headers
// are those that a collection writes. The error is for a file that cannot be read.
func (r *Reader) Verify() ([]Problem, error) {
	v := &verifier{want: map[string]Entry{}, seen: map[string]bool{}, problems: []Problem{}, digest: sha256.New()}
	v.again = tar.NewWriter(v.digest)
	v.checkManifest(&r.manifest)
	s, err := r.scan()
	if err == nil {
		err = v.files(s)
	}
	if errors.Is(err, ErrDamaged) {
		v.problem(ProblemArchive, "", "%v", err)
	} else if err != nil {
		return v.problems, err
	}
	for _, e := range r.manifest.Entries {
		if !v.seen[e.Path] {
			v.problem(ProblemAbsent, e.Path, "the manifest names it, and it is not there")
		}
	}
	return v.problems, nil
}

func (v *verifier) checkManifest(m *Manifest) {
	redactions := 0
	for _, e := range m.Entries {
		redactions += e.Redactions
		_, twice := v.want[e.Path]
		switch {
		case !safePath(e.Path):
			v.problem(ProblemPath, e.Path, "the manifest has a path that is not plain and relative")
		case e.Path == ManifestFile || twice:
			v.problem(ProblemManifest, e.Path, "the manifest names it twice")
		case !isDigest(e.SHA256) || e.Bytes < 0 || e.Bytes > maxTotal || e.Redactions < 0:
			v.problem(ProblemManifest, e.Path, "its digest or length cannot be")
		}
		v.want[e.Path] = e
	}
	if redactions != m.Redactions {
		v.problem(ProblemManifest, ManifestFile, "it counts %d redactions, its entries have %d", m.Redactions, redactions)
	}
}

// files goes through the archive to its very end.
func (v *verifier) files(s *scanning) error {
	for n := 0; ; n++ {
		h, err := s.next()
		if errors.Is(err, io.EOF) {
			return v.end(s)
		}
		if err != nil {
			return err
		}
		if err := v.file(s, h, n); err != nil {
			return err
		}
	}
}

func (v *verifier) file(s *scanning, h *tar.Header, n int) error {
	if !safePath(h.Name) {
		v.problem(ProblemPath, h.Name, "the archive has a path that is not plain and relative")
	}
	if !plain(h) {
		v.problem(ProblemHeader, h.Name, "it is no plain file as a bundle has them")
	}
	if err := v.again.WriteHeader(header(h.Name, h.Size)); err != nil {
		v.problem(ProblemHeader, h.Name, "%v", err)
	}
	sum := sha256.New()
	size, err := io.Copy(sum, io.TeeReader(s.tar, lenient{v.again}))
	if err != nil {
		return s.fail(err)
	}
	if n == 0 && h.Name == ManifestFile {
		return nil
	}
	want, ok := v.want[h.Name]
	switch digest := hex.EncodeToString(sum.Sum(nil)); {
	case !ok:
		v.problem(ProblemUnknown, h.Name, "the manifest does not name it")
	case v.seen[h.Name]:
		v.problem(ProblemUnknown, h.Name, "it is there twice")
	case size != want.Bytes:
		v.problem(ProblemDigest, h.Name, "it has %d bytes, the manifest has %d", size, want.Bytes)
	case digest != want.SHA256:
		v.problem(ProblemDigest, h.Name, "its bytes have digest %s, the manifest has %s", digest, clip(want.SHA256))
	}
	v.seen[h.Name] = true
	return nil
}

// plain reports whether a header is exactly one that a collection writes.
func plain(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if name != "path" {
			return false
		}
	}
	return h.Typeflag == tar.TypeReg && h.Linkname == "" && h.Mode == 0o644 && h.Uid == 0 && h.Gid == 0 && h.Uname == "" && h.Gname == "" &&
		h.ModTime.Equal(epoch) && h.Devmajor == 0 && h.Devminor == 0
}

// lenient lets reading go on where writing again has failed; the digests then differ.
type lenient struct{ w io.Writer }

func (l lenient) Write(b []byte) (int, error) {
	_, _ = l.w.Write(b)
	return len(b), nil
}

// end reads what follows the last file, and compares the whole with what a collection
// writes: that finds bytes in padding, in headers, and behind the end.
func (v *verifier) end(s *scanning) error {
	if _, err := io.Copy(io.Discard, s.limit); err != nil {
		return s.fail(err)
	}
	if s.limit.N <= 0 {
		return s.fail(io.EOF)
	}
	if err := v.again.Close(); err != nil || !bytes.Equal(v.digest.Sum(nil), s.digest.Sum(nil)) {
		v.problem(ProblemArchive, "", "it is not written as a collection writes it: bytes lie outside of its files")
	}
	if h := s.zip.Header; h.Name != "" || h.Comment != "" || len(h.Extra) > 0 {
		v.problem(ProblemArchive, "", "its header holds a name or a comment")
	}
	if _, err := s.raw.ReadByte(); err == nil {
		v.problem(ProblemArchive, "", "bytes follow the archive")
	}
	return nil
}

// printable keeps a foreign path from steering a terminal.
func printable(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s))
}

package bundle

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

const (
	maxManifest = 64 << 20                       // bytes
	maxUnpacked = maxTotal + maxManifest + 1<<30 // bytes, headers and padding of many small files among them
)

var (
	// ErrDamaged says that bytes are not those of a bundle as it was written.
	ErrDamaged = errors.New("the bundle is damaged")
	// ErrNoEntry says that a bundle has no such file.
	ErrNoEntry = errors.New("no such file in the bundle")
)

// Reader reads a bundle. It keeps the manifest alone in memory.
type Reader struct {
	at       io.ReaderAt
	size     int64
	close    func() error
	manifest Manifest
	head     []byte // the manifest's bytes
	unpack   int64  // most bytes to unpack
}

// Open opens a bundle's file. The caller closes it. An archive that does not begin with a
// manifest is ErrDamaged.
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open bundle: %s is no regular file", name)
	}
	var r *Reader
	if err == nil {
		r, err = NewReader(f, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.close = f.Close
	return r, nil
}

// NewReader reads a bundle of size bytes.
func NewReader(at io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{at: at, size: size, unpack: maxUnpacked, close: func() error { return nil }}
	s, err := r.scan()
	if err != nil {
		return nil, err
	}
	h, err := s.next()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err != nil || h.Name != ManifestFile || h.Size > maxManifest:
		return nil, fmt.Errorf("read manifest: %w: it does not begin with %s", ErrDamaged, ManifestFile)
	}
	if r.head, err = s.body(h.Size); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(r.head, &r.manifest); err != nil {
		return nil, fmt.Errorf("read manifest: %w: %w", ErrDamaged, err)
	}
	if m := &r.manifest; m.Schema != Schema || m.SchemaVersion != Version {
		return nil, fmt.Errorf("read manifest: schema %q version %d, this program reads %s version %d", clip(m.Schema), m.SchemaVersion, Schema, Version)
	}
	return r, nil
}

// Close closes the file that Open opened.
func (r *Reader) Close() error { return r.close() }

// Manifest returns the manifest as it stands in the archive; Verify says whether it holds.
func (r *Reader) Manifest() Manifest { return r.manifest }

// File returns a file's bytes. Errors: ErrNoEntry, and ErrDamaged where they are not those
// that the manifest names.
func (r *Reader) File(path string) ([]byte, error) {
	if path == ManifestFile {
		return r.head, nil
	}
	want, ok := r.manifest.entry(path)
	if !ok {
		return nil, fmt.Errorf("read %s: %w", clip(path), ErrNoEntry)
	}
	s, err := r.scan()
	if err != nil {
		return nil, err
	}
	for {
		h, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read %s: %w: the archive lacks it", clip(path), ErrDamaged)
		}
		if err != nil {
			return nil, err
		}
		if h.Name != path {
			continue
		}
		if h.Size != want.Bytes {
			return nil, fmt.Errorf("read %s: %w: %d bytes, the manifest has %d", clip(path), ErrDamaged, h.Size, want.Bytes)
		}
		b, err := s.body(h.Size)
		if err == nil && digestOf(b) != want.SHA256 {
			err = fmt.Errorf("read %s: %w: its digest is not the manifest's", clip(path), ErrDamaged)
		}
		return b, err
	}
}

// scanning is one pass over the archive, in bounded memory and to bounded length.
type scanning struct {
	raw    *bufio.Reader
	zip    *gzip.Reader
	limit  *io.LimitedReader
	digest hash.Hash // of everything unpacked so far
	tar    *tar.Reader
}

func (r *Reader) scan() (*scanning, error) {
	s := &scanning{raw: bufio.NewReader(io.NewSectionReader(r.at, 0, r.size))}
	var err error
	if s.zip, err = gzip.NewReader(s.raw); err != nil {
		return nil, damaged(err)
	}
	s.zip.Multistream(false)
	s.digest = sha256.New()
	s.limit = &io.LimitedReader{R: io.TeeReader(s.zip, s.digest), N: r.unpack}
	s.tar = tar.NewReader(s.limit)
	return s, nil
}

// next goes to the next file; io.EOF after the last one.
func (s *scanning) next() (*tar.Header, error) {
	h, err := s.tar.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, s.fail(err)
	}
	// A sparse file unpacks to more than its bytes in the archive.
	sparse := h.Typeflag == tar.TypeGNUSparse
	for name := range h.PAXRecords {
		sparse = sparse || strings.HasPrefix(name, "GNU.sparse.")
	}
	if sparse || h.Size > maxTotal {
		return nil, fmt.Errorf("read archive: %w: %s is a sparse or an oversized file", ErrDamaged, printable(h.Name))
	}
	return h, nil
}

// body reads a file of at most maxTotal bytes; its size is as the header says it.
func (s *scanning) body(size int64) ([]byte, error) {
	var b strings.Builder
	n, err := io.Copy(&b, io.LimitReader(s.tar, maxTotal))
	if err != nil {
		return nil, s.fail(err)
	}
	if n != size {
		return nil, fmt.Errorf("read archive: %w: a file ends early", ErrDamaged)
	}
	return []byte(b.String()), nil
}

func (s *scanning) fail(err error) error {
	if s.limit.N <= 0 {
		return fmt.Errorf("read archive: %w: it unpacks to more than a bundle may", ErrDamaged)
	}
	return damaged(err)
}

// damaged marks an error of the format. An error of the file itself stays what it is.
func damaged(err error) error {
	var file *os.PathError
	if errors.As(err, &file) {
		return fmt.Errorf("read archive: %w", err)
	}
	return fmt.Errorf("read archive: %w: %w", ErrDamaged, err)
}

package bundle

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// write writes the archive: fixed owner, mode and time, files by name.
func (c *collection) write(m *Manifest, w io.Writer) (Summary, error) {
	head, err := m.encode()
	if err != nil {
		return Summary{}, fmt.Errorf("collect bundle: %w", err)
	}
	sum := sha256.New()
	count := &counter{w: io.MultiWriter(w, sum)}
	zip, err := gzip.NewWriterLevel(count, gzip.BestCompression)
	if err != nil {
		return Summary{}, fmt.Errorf("write archive: %w", err)
	}
	t := tar.NewWriter(zip)
	err = writeFile(t, ManifestFile, int64(len(head)), func(w io.Writer) error { _, err := w.Write(head); return err })
	for _, e := range m.Entries {
		if err != nil {
			break
		}
		err = writeFile(t, e.Path, e.Bytes, func(w io.Writer) error {
			_, err := io.Copy(w, c.spool.open(c.at[e.Path], e.Bytes))
			return err
		})
	}
	if err == nil {
		err = t.Close()
	}
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		return Summary{}, fmt.Errorf("write archive: %w", err)
	}
	return Summary{
		SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: count.n, Hosts: m.Hosts, Collected: len(m.Entries), Missing: m.Missing, Redactions: m.Redactions,
	}, nil
}

// epoch is the time of every file in an archive.
var epoch = time.Unix(0, 0)

func header(path string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: size, Mode: 0o644, ModTime: epoch}
}

func writeFile(t *tar.Writer, path string, size int64, fill func(io.Writer) error) error {
	if err := t.WriteHeader(header(path, size)); err != nil {
		return err
	}
	return fill(t)
}

// counter counts what passes.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/ownfile"
)

// file is what a journal is written to; an *os.File is one.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
	Sync() error
}

// stream is a file that can neither be cut nor synced.
type stream struct{ io.WriteCloser }

func (stream) Truncate(int64) error { return errors.ErrUnsupported }
func (stream) Sync() error          { return nil }

// disk is the open file of a journal. After a failed write it holds whole lines only, as
// soon as it can be cut.
type disk struct {
	f      file
	name   string // for people
	path   string // "" = it cannot be rotated
	size   int64  // up to the end of the last whole line
	torn   bool   // something stands behind that
	began  time.Time
	create func(path string) (file, error) // held against other writers
	same   os.FileInfo                     // of the open file; nil = it is not looked for
}

// append writes whole lines and returns how many bytes of whole lines the file took.
func (d *disk) append(b []byte) (int, error) {
	if err := d.mend(); err != nil {
		return 0, err
	}
	n, err := d.f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err == nil {
		d.size += int64(n)
		return n, nil
	}
	whole := bytes.LastIndexByte(b[:max(0, n)], '\n') + 1
	d.size += int64(whole)
	d.torn = n > whole
	return whole, errors.Join(err, d.mend())
}

// mend removes what a failed write left behind the last whole line. What cannot be cut is
// ended instead: a reader then counts one bad line.
func (d *disk) mend() error {
	if !d.torn {
		return nil
	}
	if err := d.f.Truncate(d.size); err != nil {
		n, end := d.f.Write([]byte{'\n'})
		if end != nil || n < 1 {
			return fmt.Errorf("cut a torn line: %w", errors.Join(err, end))
		}
	}
	d.torn = false
	return nil
}

// close syncs and closes.
func (d *disk) close() error {
	return errors.Join(d.mend(), ignoreUnsupported(d.f.Sync()), d.f.Close())
}

// due reports whether the file must end before n more bytes.
func (d *disk) due(n int, o *Options) bool {
	if d.path == "" || d.size == 0 || d.torn {
		return false
	}
	return o.MaxBytes > 0 && d.size+int64(n) > o.MaxBytes || o.MaxAge > 0 && o.now().Sub(d.began) >= o.MaxAge
}

// rotate gives the open file its ended name and begins an empty one at the path, which is
// done even when what follows that fails. At every moment the path holds a file that this
// process holds against other writers.
func (d *disk) rotate(o *Options) (done bool, err error) {
	next := nextName(d.path)
	f, err := d.prepare(next)
	if err != nil {
		return false, fmt.Errorf("rotate journal: %w", err)
	}
	if err := d.swap(next, o.now()); err != nil {
		return false, fmt.Errorf("rotate journal: %w", errors.Join(err, f.Close(), os.Remove(next)))
	}
	old := d.f
	d.f, d.size, d.began = f, 0, o.now()
	d.same = infoOf(f)
	err = errors.Join(old.Close(), syncDir(filepath.Dir(d.path)), prune(d.path, o.Keep))
	if err != nil {
		err = fmt.Errorf("rotate journal: %w", err)
	}
	return true, err
}

// nextName is where a rotation makes the next file.
func nextName(path string) string { return path + ".next" }

// prepare makes what the open file has durable and opens the next one, empty.
func (d *disk) prepare(next string) (file, error) {
	if err := ignoreUnsupported(d.f.Sync()); err != nil {
		return nil, err
	}
	if err := foreign(ownfile.Check(next, kind)); err != nil {
		return nil, fmt.Errorf("%s: %w", next, err)
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return d.create(next)
}

// swap names the old file and puts the new one in its place.
func (d *disk) swap(next string, now time.Time) error {
	ended, err := endedName(d.path, now)
	if err != nil {
		return err
	}
	if err := os.Link(d.path, ended); err == nil {
		return os.Rename(next, d.path)
	}
	// A file system without links: for a moment the path is free. Take notices.
	if err := os.Rename(d.path, ended); err != nil {
		return err
	}
	return os.Rename(next, d.path)
}

func ignoreUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(ignoreUnsupported(f.Sync()), f.Close())
}

package bench

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// maxWindow bounds what is copied of a journal, in bytes.
const maxWindow = 4 << 30

// window remembers where a journal ended when a point began. It keeps the file open, so
// that its name may go on to another file.
type window struct {
	path  string
	file  *os.File
	begin os.FileInfo
	from  int64
}

// What can become of a journal's file within a point.
var (
	errReplaced  = errors.New("the journal's file was replaced")
	errTruncated = errors.New("the journal's file became shorter")
)

func openWindow(path string) (*window, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("open journal: not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if info, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &window{path, f, info, info.Size()}, nil
}

func (w *window) Close() error { return w.file.Close() }

// copy writes what the journal got since the window was opened, over all files that it
// has begun meanwhile. A file that is neither under the journal's name nor among its ended
// ones was replaced.
func (w *window) copy(to io.Writer) error {
	files, err := journal.Files(w.path)
	if err != nil {
		return err
	}
	at := -1
	for i, p := range files {
		if info, err := os.Stat(p); err == nil && os.SameFile(info, w.begin) {
			at = i
		}
	}
	now, err := w.file.Stat()
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	if now.Size() < w.from {
		return errTruncated
	}
	if at < 0 {
		return errReplaced
	}
	if err := copyAll(to, io.NewSectionReader(w.file, w.from, now.Size()-w.from)); err != nil {
		return err
	}
	for _, p := range files[at+1:] {
		if err := copyFile(to, p); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	defer f.Close()
	return copyAll(to, f)
}

func copyAll(to io.Writer, from io.Reader) error {
	n, err := io.Copy(to, io.LimitReader(from, maxWindow+1))
	if err == nil && n > maxWindow {
		err = fmt.Errorf("more than %d bytes", int64(maxWindow))
	}
	if err != nil {
		return fmt.Errorf("copy journal: %w", err)
	}
	return nil
}

// Package ownfile says whether a process may write over a file.
//
// It promises that a file which holds something else is told from one that an earlier process
// of this program wrote, and that two uses of one file are seen however its path is spelled. It
// refuses what is no regular file, and it never opens a file for writing.
package ownfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrForeign: the file holds something else, and nothing of it was touched.
var ErrForeign = errors.New("file holds something else")

// ErrIrregular: the path names a device, a pipe, a socket or a folder.
var ErrIrregular = errors.New("it is no regular file")

// Kind is what an earlier process may have left at a path.
type Kind struct {
	Name string                             // for errors: a handoff document
	Most int64                              // bytes that Is needs to see
	Is   func(head []byte, whole bool) bool // judges the first Most bytes; whole: there are no more
}

// Check refuses the file at path unless it is absent, empty, or of the kind. A link is
// followed. Nothing but a regular file is opened.
func Check(path string, k Kind) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // a folder that cannot be made is told by who makes it
	}
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	// The path may name something else by now, for example a pipe, which would wait.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return CheckFile(f, path, k)
}

// CheckFile is Check of an open file.
func CheckFile(f *os.File, path string, k Kind) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	head, err := io.ReadAll(io.NewSectionReader(f, 0, k.Most))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if len(head) == 0 || k.Is(head, int64(len(head)) == st.Size()) {
		return nil
	}
	return fmt.Errorf("%s: %w than %s", path, ErrForeign, k.Name)
}

// maxLinks bounds how many links Real follows from one last name to the next.
const maxLinks = 40

// Real is the absolute path of the file that a write to path would reach: links are followed,
// also one whose target is absent, and folders that are absent stay as they are written.
func Real(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for range maxLinks {
		dir, err := realFolder(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		st, err := os.Lstat(path)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			return path, nil // what stands in the way is told by who opens it
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
}

func realFolder(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil || filepath.Dir(dir) == dir {
		return real, err
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return "", err
	}
	up, err := realFolder(filepath.Dir(dir))
	return filepath.Join(up, filepath.Base(dir)), err
}

// Package atomicfile replaces whole files so that a reader, or a machine that
// lost power, sees the old bytes or the new ones and never a mixture.
//
// It promises that a returned nil means the bytes and the name are on disk. It
// refuses to follow the final name when that is a link: the link is replaced.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	tempMark = ".atomic-"
	longBase = 100 // bytes of a file's name that its temporary files carry
)

// tempOf begins the name of a temporary file of path; digits follow.
func tempOf(path string) string {
	base := filepath.Base(path)
	return tempMark + base[:min(len(base), longBase)] + "-"
}

// Write puts data at path with the given permission bits: temporary file in the
// same folder, fsync, rename, fsync of the folder. The folder must exist.
func Write(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempOf(path)+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), nameless(err))
	}
	if err = fill(f, data, perm); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w", filepath.Base(path), nameless(err))
		if left := os.Remove(f.Name()); left != nil {
			err = errors.Join(err, fmt.Errorf("remove what was written: %w", nameless(left)))
		}
		return err
	}
	return SyncDir(dir)
}

// nameless drops the name of the temporary file, which differs each time, from an error.
func nameless(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return fmt.Errorf("%s a temporary file in %s: %w", path.Op, filepath.Dir(path.Path), path.Err)
	case errors.As(err, &link):
		return fmt.Errorf("%s a temporary file in %s: %w", link.Op, filepath.Dir(link.Old), link.Err)
	}
	return err
}

func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir flushes a folder's entries, which makes a create, rename or remove in it durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

// MkdirAll makes dir and its missing parents durable: each new folder's entry is
// flushed in its parent.
func MkdirAll(dir string, perm fs.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make folder: %w", err)
	}
	return SyncDir(parent)
}

// IsTemp reports whether name is a temporary file that Write leaves behind when
// its process is killed. Such a file may be removed by whoever owns the folder.
func IsTemp(name string) bool {
	return strings.HasPrefix(filepath.Base(name), tempMark)
}

// Sweep removes the temporary files that killed processes left of path. The caller is its only
// writer for as long as this runs.
func Sweep(path string) {
	dir, start := filepath.Dir(path), tempOf(path)
	if len(filepath.Base(path)) > longBase {
		return // another file's may be called alike
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if rest, ours := strings.CutPrefix(e.Name(), start); ours && e.Type().IsRegular() && rest != "" && strings.Trim(rest, "0123456789") == "" {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

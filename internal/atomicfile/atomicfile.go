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

const tempMark = ".atomic-"

// Write puts data at path with the given permission bits: temporary file in the
// same folder, fsync, rename, fsync of the folder. The folder must exist.
func Write(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempMark)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := fill(f, data, perm); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), os.Remove(f.Name()))
	}
	return SyncDir(dir)
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

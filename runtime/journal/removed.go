package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// infoOf is nil where the file cannot tell.
func infoOf(f file) os.FileInfo {
	if s, ok := f.(interface{ Stat() (os.FileInfo, error) }); ok {
		if st, err := s.Stat(); err == nil {
			return st
		}
	}
	return nil
}

// lost says how the path stopped to name the open file, "" while it does. What cannot be
// asked counts as unchanged: the open file still takes rows.
func (d *disk) lost() string {
	if d.path == "" || d.same == nil {
		return ""
	}
	now, err := os.Stat(d.path)
	switch {
	case err == nil && !os.SameFile(now, d.same):
		return "replaced"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "removed"
	}
	return ""
}

// renew goes on in the file that the path names now, made with its folder if absent. On error
// the file that is open stays so, and takes nothing.
func (d *disk) renew(now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return fmt.Errorf("open journal anew: %w", err)
	}
	f, err := openHeld(d.path)
	if err != nil {
		return fmt.Errorf("open journal anew: %w", err)
	}
	next, err := openDisk(f, d.path)
	if err != nil {
		return errors.Join(fmt.Errorf("open journal anew: %w", err), f.Close())
	}
	_ = d.close() // nobody finds that file any more, unless it was moved
	next.began, next.create = now, d.create
	*d = *next
	return nil
}

// disturbed reports what another process did to the open file: how many bytes it has, and
// whether those are as many as were written.
func (d *disk) disturbed() (size int64, yes bool) {
	if d.path == "" || d.same == nil || d.torn {
		return 0, false
	}
	st := infoOf(d.f)
	if st == nil || st.Size() == d.size {
		return 0, false
	}
	return st.Size(), true
}

// settle goes on behind what another process left, in a line of its own. What it left stays.
func (d *disk) settle(size int64) error {
	f, ok := d.f.(*os.File)
	if !ok {
		return nil
	}
	d.size = size
	rest, err := lastLine(f, size)
	if err != nil || len(rest) == 0 {
		return err
	}
	n, err := f.Write([]byte{'\n'})
	d.size += int64(n)
	return err
}

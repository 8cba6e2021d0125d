package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ErrHeld means that another process writes the journal.
type ErrHeld struct {
	Path string
	PID  int // 0 = not known
}

func (e *ErrHeld) Error() string {
	if e.PID > 0 {
		return fmt.Sprintf("journal %s is held by process %d", e.Path, e.PID)
	}
	return fmt.Sprintf("journal %s is held by another process", e.Path)
}

// Hold is an open journal that no other process may write; nothing is written yet. The
// kernel ends the hold with the process, however that ends.
type Hold struct {
	f    *os.File
	path string
}

// takes bounds how often Take follows a journal that is rotated at that very moment.
const takes = 8

// Take opens the file at path, created with mode 0600 if absent, and holds it: *ErrHeld
// while another writer does. What is no regular file (a pipe, /dev/null) has no hold.
func Take(path string) (*Hold, error) {
	for range takes {
		f, err := openHeld(path)
		if err != nil {
			return nil, fmt.Errorf("open journal: %w", err)
		}
		// Between opening and locking, its holder may have ended the file.
		mine, err := f.Stat()
		now, gone := os.Stat(path)
		if err == nil && gone == nil && os.SameFile(mine, now) {
			return &Hold{f, path}, nil
		}
		_ = f.Close()
		if err := errors.Join(err, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open journal: %w", err)
		}
	}
	return nil, fmt.Errorf("open journal: %w", &ErrHeld{Path: path})
}

func openHeld(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, path); err != nil {
		_ = f.Close()
		return nil, err
	}
	if err := ours(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func lock(f *os.File, path string) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", path, err)
	}
	held := &ErrHeld{Path: path}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		// Absent but on Linux; then nobody is named.
		if b, err := os.ReadFile("/proc/locks"); err == nil {
			held.PID = lockHolder(string(b), sys.Ino)
		}
	}
	return held
}

// Start begins with the meta line and returns the writer, which keeps the hold until Close.
// Options are the zero value if left out. An unfinished last line of an earlier process is
// cut off, or ended if it is whole. On error the hold is gone. A full disk is no error here:
// the writer waits for room.
func (h *Hold) Start(run string, meta Meta, o ...Options) (*Writer, error) {
	d, err := openDisk(h.f, h.path)
	if err != nil {
		_ = h.f.Close()
		return nil, fmt.Errorf("open journal: %w", err)
	}
	var opt Options
	if len(o) > 0 {
		opt = o[0]
	}
	return newWriter(d, run, meta, opt), nil
}

// openDisk finds the end of the last whole line.
func openDisk(f *os.File, path string) (*disk, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d := &disk{f: f, name: path, create: func(p string) (file, error) { return openHeld(p) }}
	if !st.Mode().IsRegular() {
		return d, nil
	}
	d.path, d.size, d.same = path, st.Size(), st
	rest, err := lastLine(f, d.size)
	if err != nil || len(rest) == 0 {
		return d, err
	}
	if _, ok, _ := parse(rest); ok {
		if n, err := f.Write([]byte{'\n'}); n == 1 && err == nil {
			d.size++
			return d, nil
		}
	}
	d.size -= int64(len(rest))
	d.torn = true
	return d, nil // the first write mends it
}

// lastLine reads what stands behind the last newline, all of it if that is not near.
func lastLine(f *os.File, size int64) ([]byte, error) {
	for n := int64(4 << 10); ; n *= 16 {
		n = min(n, size, maxLine)
		b := make([]byte, n)
		if _, err := f.ReadAt(b, size-n); err != nil {
			return nil, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return b[i+1:], nil
		}
		if n == size || n == maxLine {
			return b, nil
		}
	}
}

// Release ends a hold that was not started.
func (h *Hold) Release() { _ = h.f.Close() }

// lockHolder finds in the text of /proc/locks the process with an flock on an inode; 0 if
// there is none, or if locks on several devices share the inode's number.
func lockHolder(text string, inode uint64) int {
	found := 0
	for line := range strings.Lines(text) {
		// id: FLOCK ADVISORY WRITE pid major:minor:inode start end; a waiter has -> after the id.
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10)) {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid <= 0 {
			continue
		}
		if found != 0 && found != pid {
			return 0
		}
		found = pid
	}
	return found
}

package journal

import (
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
type Hold struct{ f *os.File }

// Take opens the file at path, created with mode 0600 if absent, and holds it: *ErrHeld
// while another writer does. What is no regular file (a pipe, /dev/null) has no hold.
func Take(path string) (*Hold, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := lock(f, path); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Hold{f}, nil
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

// Start writes the meta line and returns the writer, which keeps the hold until Close. An
// unfinished last line of an earlier process is ended first. On error the hold is gone.
func (h *Hold) Start(run string, meta Meta) (*Writer, error) {
	if err := endTornLine(h.f); err != nil {
		_ = h.f.Close()
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return New(h.f, run, meta), nil
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

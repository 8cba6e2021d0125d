// Package filelock says that a file belongs to one process.
//
// It promises a hold that the kernel ends with the process, and the holder's process id where
// the holder could write it. It refuses to touch the file itself: the lock is a file
// beside it, which is refused in turn when it holds anything but a process id.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/narwhal-fleet/narwhal/internal/ownfile"
)

// HeldError means that another process holds the file.
type HeldError struct {
	Path string // of the file
	PID  int    // 0 = not known
}

func (e *HeldError) Error() string {
	if e.PID > 0 {
		return fmt.Sprintf("%s is held by process %d", e.Path, e.PID)
	}
	return e.Path + " is held by another process"
}

// Hold is a held file.
type Hold struct{ f *os.File }

// Take holds the file at path, which need not exist, by a lock on path.lock: *HeldError while
// another holds it. The folder must exist.
func Take(path string) (*Hold, error) {
	if err := Check(path); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f, err := os.OpenFile(Name(path), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		held := &HeldError{Path: path, PID: written(f)}
		_ = f.Close()
		return nil, held
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The id is for people: a full disk costs no hold.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &Hold{f}, nil
}

// Name is the lock file of the file at path.
func Name(path string) string { return path + ".lock" }

// kind is a lock file: a process id on a line, or part of it.
var kind = ownfile.Kind{Name: "the id of a process", Most: 32, Is: func(head []byte, whole bool) bool {
	return whole && strings.Trim(strings.TrimSuffix(string(head), "\n"), "0123456789") == ""
}}

// Check refuses a path whose lock file holds something else.
func Check(path string) error { return ownfile.Check(Name(path), kind) }

func written(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 0 {
		return 0
	}
	return pid
}

// Release ends the hold. The lock file stays: removing it would let two hold it.
func (h *Hold) Release() { _ = h.f.Close() }

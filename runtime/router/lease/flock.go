package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a taken lock is tried again. An operation under it lasts the few
// milliseconds of two fsyncs.
const lockPoll = 3 * time.Millisecond

// openLock opens a lock file, made with mode 0600 if absent. Links are refused.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0o600)
}

// tryLock takes an exclusive flock; false while another open file has it.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

// lockPath takes the flock of path, until ctx ends. Closing the file gives it back.
func lockPath(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := openLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock lease: %w", err)
		}
		got, err := tryLock(f)
		if err == nil && got && isAt(f, path) {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("lock lease: %w", err)
		}
		wait := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil, fmt.Errorf("lock lease: %w", ctx.Err())
		case <-wait.C:
		}
	}
}

// isAt reports whether path still names the open file.
func isAt(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

package lease

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// guardPause is between attempts of a guard to release.
const guardPause = 50 * time.Millisecond

// held keeps the ends of pipes that only the end of this process may close.
var held struct {
	sync.Mutex
	ends []*os.File
}

// StartGuard starts a process whose standard input ends when this process does, however
// that happens, and which then calls Guard. It lives in a session of its own, so signals to
// this process's terminal or group do not reach it. The caller waits for c, which ends with
// the input, or leaves that to init.
func StartGuard(c *exec.Cmd) error {
	r, w, err := os.Pipe() // both ends close on exec
	if err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	c.Stdin, c.SysProcAttr = r, &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return fmt.Errorf("start guard: %w", err)
	}
	held.Lock()
	defer held.Unlock()
	held.ends = append(held.ends, w)
	return nil
}

// Guard frees the lease of a holder whose process is gone, for stores that have no proof of
// that, as etcd or a file on NFS: it runs in another process of the holder's machine, and
// the end of gone, a pipe that only the holder keeps open, is the kernel's word. Who guards
// by it may shorten a takeover from the time to live to milliseconds; if the machine fails,
// the guard fails with it and the lease expires as without one.
//
// It returns nil when the lease is not holder's (any more). After the end of gone it tries
// for at most limit: beyond the time to live nothing is left to free.
func Guard(ctx context.Context, gone io.Reader, l Lease, holder string, limit time.Duration) error {
	if _, err := io.Copy(io.Discard, gone); err != nil {
		return fmt.Errorf("guard lease: %w", err) // no proof of anything
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		d, err := l.Look(ctx)
		if err == nil && d.Holder != holder {
			return nil
		}
		if err == nil {
			err = l.Release(ctx, Term{Epoch: d.Epoch, Holder: holder})
		}
		if err == nil {
			return nil
		}
		pause := time.NewTimer(guardPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("guard lease: %w", err)
		}
	}
}

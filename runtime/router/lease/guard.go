package lease

import (
	"context"
	"fmt"
	"io"
	"time"
)

// guardPause is between attempts of a guard to release.
const guardPause = 50 * time.Millisecond

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

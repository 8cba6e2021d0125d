// Package pause waits for a time or for the end of a context.
//
// It promises to return at the first of both and to leave no timer behind. It refuses to wait
// for anything else.
package pause

import (
	"context"
	"time"
)

// For waits; false when ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

package router

import (
	"context"
	"errors"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// backoff of an engine whose count failed, seconds.
const (
	countRetry    = 1.0
	countRetryMax = 30.0
)

// count asks the least busy live engine for the prompt's length. A failed count falls back
// to the estimate (0, nil) and rests that engine.
func (r *Router) count(ctx context.Context, body []byte) (int, *failure) {
	o := r.own
	n := r.leastBusy(o.now())
	if n == nil {
		return 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, r.set.count)
	defer cancel()
	t, err := n.data.TokenizeBody(limited, body)
	if err == nil && t.Count > 0 {
		o.do(func() { n.countRest = 0 })
		return t.Count, nil
	}
	if ctx.Err() != nil {
		return 0, ended(context.Cause(ctx))
	}
	var status *engine.StatusError
	if errors.As(err, &status) && status.Client() {
		return 0, nil // the prompt is at fault: its leg will say so
	}
	o.do(func() {
		n.countRest = min(countRetryMax, max(countRetry, 2*n.countRest))
		n.countAfter = o.now() + n.countRest
	})
	return 0, nil
}

func (n *node) load() int { return len(n.prefilling) + len(n.pending) + len(n.decoding) }

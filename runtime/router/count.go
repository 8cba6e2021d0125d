package router

import (
	"context"
	"encoding/json"
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
	t, err := r.tokens(limited, n, body)
	if errors.Is(err, errAnswerMemory) {
		return 0, nil
	}
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

// tokens asks one engine for the prompt's tokens.
func (r *Router) tokens(ctx context.Context, n *node, body []byte) (t engine.Tokens, err error) {
	resp, err := n.data.Do(ctx, "/tokenize", body, "")
	if err != nil {
		return t, err
	}
	if err := engine.Refused(resp); err != nil {
		return t, err
	}
	defer resp.Body.Close()
	held := r.answers.portion()
	defer held.drop()
	raw, err := held.readAll(resp.Body, "/tokenize", r.set.Fleet.Serving.MaxResponseBytes)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(raw, &t)
}

func (n *node) load() int { return len(n.prefilling) + len(n.pending) + len(n.decoding) }

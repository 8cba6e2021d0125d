package attest

import (
	"context"
	"errors"
	"time"

	"github.com/narwhal-fleet/narwhal/attest/look"
)

// Looker reads what the host shows of the process with the pid and start ticks.
type Looker interface {
	Look(ctx context.Context, pid int, ticks int64) (look.Observed, error)
}

// CodeLooking is the error of a sidecar that still hashes: ask again, with another nonce
// or the same.
const CodeLooking = "looking"

var errLooking = errors.New("the files are still being read; ask again")

const (
	lookWait  = 8 * time.Second  // that a request waits for a look
	lookLimit = 30 * time.Minute // of one look
)

func lookCode(err error) string {
	if errors.Is(err, errLooking) {
		return CodeLooking
	}
	return "engine_unavailable"
}

// look reads the host anew for one request. A look that takes longer than the request
// goes on, so that the next one finds the files hashed.
func (s *Sidecar) look(ctx context.Context) (look.Observed, error) {
	if s.looker == nil || s.bound.PID == 0 {
		return nil, nil
	}
	patience := time.NewTimer(lookWait)
	defer patience.Stop()
	select {
	case s.looking <- struct{}{}:
	case <-patience.C:
		return nil, errLooking
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type result struct {
		seen look.Observed
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-s.looking }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
		defer cancel()
		seen, err := s.looker.Look(ctx, s.bound.PID, s.bound.StartTicks)
		done <- result{seen, err}
	}()
	select {
	case r := <-done:
		return r.seen, r.err
	case <-patience.C:
		return nil, errLooking
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

package router

import (
	"context"
	"errors"
	"fmt"
)

// Serve runs a router until ctx ends and stops it orderly, which is no error. started, if
// not nil, is called with the address once the router serves.
func Serve(ctx context.Context, c Config, started func(addr string)) error {
	r, err := New(c)
	if err != nil {
		return err
	}
	if err := r.Start(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // ended before it served
		}
		return err
	}
	if started != nil {
		started(r.Addr())
	}
	var broken error
	select {
	case <-ctx.Done():
	case <-r.Down():
		broken = errors.New("serve: listener ended")
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.set.grace+stopExtra)
	defer cancel()
	if err := r.Stop(last); err != nil {
		return errors.Join(broken, fmt.Errorf("serve: %w", err))
	}
	return broken
}

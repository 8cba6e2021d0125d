package router

import (
	"context"
	"errors"
	"fmt"
)

// Serve runs the router until ctx ends and stops it orderly, which is no error. started, if
// not nil, is called once it answers.
func (r *Router) Serve(ctx context.Context, started func()) error {
	if err := r.Start(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // ended before it served
		}
		return err
	}
	if started != nil {
		started()
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

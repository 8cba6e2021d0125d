package process

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Stopped says how a process ended.
type Stopped struct {
	Name string `json:"name"`
	// Was is false when nothing ran under the name.
	Was    bool `json:"was_running"`
	PID    int  `json:"pid,omitempty"`
	Killed bool `json:"killed,omitempty"` // KILL was needed
}

// Stop ends the recorded process and its session: TERM, then KILL after within.
// Stopping what does not run is a success. The record is removed.
func Stop(ctx context.Context, dir, name string, within time.Duration) (Stopped, error) {
	if !nameRE.MatchString(name) {
		return Stopped{}, fmt.Errorf("stop process %q: the name is not usable", name)
	}
	path, _, _ := paths(dir, name)
	r, ok := Read(dir, name)
	if !ok {
		return Stopped{Name: name}, nil
	}
	out := Stopped{Name: name, Was: r.Alive(), PID: r.PID}
	if out.Was {
		_ = syscall.Kill(-r.PID, syscall.SIGTERM)
		if !gone(ctx, r.Identity, within) {
			out.Killed = true
			_ = syscall.Kill(-r.PID, syscall.SIGKILL)
			if !gone(ctx, r.Identity, 5*time.Second) {
				return out, fmt.Errorf("stop process %s: pid %d survived KILL", name, r.PID)
			}
		}
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return out, fmt.Errorf("stop process %s: %w", name, err)
	}
	return out, nil
}

// gone waits until the process has ended; false when it still runs after the limit.
func gone(ctx context.Context, id Identity, within time.Duration) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return !id.Alive()
		case <-tick.C:
		}
	}
	return true
}

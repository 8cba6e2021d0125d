package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// killWait is how long KILL may take to show.
const killWait = 5 * time.Second

// Stop ends the recorded process and what it left in its process group: TERM, then KILL
// after within. Stopping what does not run is a success. The record is removed once the
// process has ended; when ctx ends first, it stays and the process is not killed. A process of
// a unit is ended by its manager, which then knows nothing of the unit any more.
func Stop(ctx context.Context, dir, name string, within time.Duration) (Stopped, error) {
	if !nameRE.MatchString(name) {
		return Stopped{}, fmt.Errorf("stop process %q: the name is not usable", name)
	}
	r, ok := Read(dir, name)
	if !ok {
		return Stopped{Name: name}, nil
	}
	if r.Unit != nil {
		return stopUnit(ctx, dir, r, within)
	}
	out := Stopped{Name: name, Was: r.Remains(), PID: r.PID}
	if out.Was {
		_ = syscall.Kill(-r.PID, syscall.SIGTERM)
		if !gone(ctx, r.Identity, within) {
			if ctx.Err() != nil {
				return out, fmt.Errorf("stop process %s: %w", name, context.Cause(ctx))
			}
			out.Killed = true
			killGroup(r.Identity)
			if !gone(ctx, r.Identity, killWait) {
				return out, fmt.Errorf("stop process %s: pid %d survived KILL", name, r.PID)
			}
		}
	}
	if err := after(ctx, r); err != nil {
		return out, fmt.Errorf("stop process %s: %w", name, err)
	}
	if err := forget(dir, name, r.Identity); err != nil {
		return out, fmt.Errorf("stop process %s: %w", name, err)
	}
	return out, nil
}

// Remains reports whether the process runs, or others in the group that it led.
func (i Identity) Remains() bool { return i.Alive() || grouped(i) }

// afterLimit bounds what is run once a process has ended.
const afterLimit = 30 * time.Second

// after runs the record's clean-up; the record stays when it fails.
func after(ctx context.Context, r Record) error {
	return sweep(ctx, r.After)
}

// clearWay runs what must have been taken away before a process starts.
func clearWay(ctx context.Context, s Spec) error { return sweep(ctx, s.Before) }

func sweep(ctx context.Context, argv []string) error {
	if len(argv) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, afterLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // a grandchild may hold its output
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("clean up with %s: %w: %.200s", argv[0], err, out)
	}
	return nil
}

// forget removes the record of one process; a record of another one stays.
func forget(dir, name string, id Identity) error {
	path, _, lockPath := paths(dir, name)
	lock, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if r, ok := Read(dir, name); ok && r.Identity != id {
		return nil
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// gone waits until the process and its group have ended; false when something still runs
// after the limit.
func gone(ctx context.Context, id Identity, within time.Duration) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() || grouped(id) {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return !id.Alive() && !grouped(id)
		case <-tick.C:
		}
	}
	return true
}

// killGroup sends KILL to the process and its group.
func killGroup(id Identity) {
	if id.Alive() || grouped(id) {
		_ = syscall.Kill(-id.PID, syscall.SIGKILL)
	}
}

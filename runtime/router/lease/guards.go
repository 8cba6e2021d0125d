package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// Between the end of a guard and its next start; a guard that lasts for guardLasts is a good one.
const (
	guardFirst   = 100 * time.Millisecond
	guardLongest = 30 * time.Second
	guardLasts   = time.Minute
	guardEnding  = time.Second // that a guard has to end after Close
)

// held keeps the ends of pipes that only the end of this process may close.
var held struct {
	sync.Mutex
	ends map[*os.File]bool
}

// StartGuard starts a process whose standard input ends when this process does, however
// that happens, and which then calls Guard. It lives in a session of its own, so signals to
// this process's terminal or group do not reach it. The caller waits for c, which ends with
// the input, or leaves that to init; end closes the input before that.
func StartGuard(c *exec.Cmd) (end func(), err error) {
	r, w, err := os.Pipe() // both ends close on exec
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	c.Stdin, c.SysProcAttr = r, &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	held.Lock()
	defer held.Unlock()
	if held.ends == nil {
		held.ends = map[*os.File]bool{}
	}
	held.ends[w] = true
	return func() {
		held.Lock()
		defer held.Unlock()
		delete(held.ends, w)
		_ = w.Close()
	}, nil
}

// Guards keep one guard process beside this one: a guard that ends is waited for, told of and
// started anew, sooner the longer it lasted.
type Guards struct {
	stop context.CancelFunc
	done chan struct{}
	ends atomic.Int64
}

// KeepGuard starts a guard and goes on until Close. command makes one that was not started; tell is
// called from one goroutine with why a guard ended or could not be started.
func KeepGuard(command func() *exec.Cmd, tell func(error)) *Guards {
	ctx, cancel := context.WithCancel(context.Background())
	g := &Guards{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		for wait := guardFirst; ; wait = min(2*wait, guardLongest) {
			from := time.Now()
			err := runGuard(ctx, command())
			if ctx.Err() != nil {
				return
			}
			g.ends.Add(1)
			tell(err)
			if time.Since(from) >= guardLasts {
				wait = guardFirst
			}
			if !pause.For(ctx, wait) {
				return
			}
		}
	}()
	return g
}

// runGuard returns when the guard has ended, which it does soon after ctx.
func runGuard(ctx context.Context, c *exec.Cmd) error {
	end, err := StartGuard(c)
	if err != nil {
		return err
	}
	var once sync.Once
	defer once.Do(end)
	defer context.AfterFunc(ctx, func() { once.Do(end) })()
	if err := c.Wait(); err != nil {
		return fmt.Errorf("guard ended: %w", err)
	}
	return errors.New("guard ended")
}

// Ends tells how often a guard has ended, or could not be started.
func (g *Guards) Ends() int { return int(g.ends.Load()) }

// Close lets the guard free what its holder still has, and ends it. Call it when the process
// serves no more.
func (g *Guards) Close() {
	g.stop()
	t := time.NewTimer(guardEnding)
	defer t.Stop()
	select {
	case <-g.done:
	case <-t.C: // it goes on beyond this process
	}
}

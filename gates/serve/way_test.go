package serve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// TestWayComesBack opens a lost tunnel again, later each time, and counts.
func TestWayComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, tries, next := time.Now(), []time.Duration{}, make(chan struct{})
		w := &way{told: func(string) {}, opened: make(chan struct{})}
		w.open = func(context.Context) (string, <-chan struct{}, error) {
			if tries = append(tries, time.Since(begin)); len(tries) < 4 {
				return "", nil, errors.New("refused")
			}
			return "b", next, nil
		}
		w.set("a")
		lost := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.keep(ctx, lost) }()
		close(lost)
		synctest.Wait()
		waiting, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		if _, err := w.dial(waiting, "tcp", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a connection without a tunnel: %v", err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if w.addr != "b" || w.lostTimes() != 1 || len(tries) != 4 || tries[3] != 1500*time.Millisecond {
			t.Errorf("at %q, lost %d times, tries after %v", w.addr, w.lostTimes(), tries)
		}
		cancel()
		close(next)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if w.lostTimes() != 1 {
			t.Error("the end of the trial counts as a loss")
		}
	})
}

// TestWayThatStaysLost gives up in the end, and says what to do.
func TestWayThatStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{told: func(string) {}, opened: make(chan struct{}), open: func(context.Context) (string, <-chan struct{}, error) { return "", nil, errors.New("refused") }}
		w.set("a")
		lost := make(chan struct{})
		close(lost)
		begin := time.Now()
		err := w.keep(t.Context(), lost)
		if took := time.Since(begin); !errors.Is(err, errTunnelLost) || problem.StatusOf(err) != problem.Failed || took < tunnelWithin || took > tunnelWithin+tunnelMost {
			t.Errorf("got %v", err)
		}
	})
}

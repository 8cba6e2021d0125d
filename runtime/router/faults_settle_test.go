package router

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stalls notes when this process did not run although it wanted to: what is timed meanwhile
// says something about the machine.
var stalls atomic.Int64

const stall = 400 * time.Millisecond

func init() {
	go func() {
		last := time.Now()
		for now := range time.Tick(50 * time.Millisecond) {
			if late := time.Since(last); late > stall || time.Since(now) > stall {
				stalls.Add(1)
			}
			last = time.Now()
		}
	}()
}

// long is the patience of a client that waits for an answer.
func long(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// together runs subtests beside each other, more of them than there are processors: most of
// their time is waiting.
func together[T any](t *testing.T, cases []T, name func(T) string, run func(*testing.T, T)) {
	t.Helper()
	const width = 6
	queue := make(chan T)
	var crew sync.WaitGroup
	for range min(width, len(cases)) {
		crew.Go(func() {
			for c := range queue {
				t.Run(name(c), func(t *testing.T) {
					settles(t)
					run(t, c)
				})
			}
		})
	}
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	crew.Wait()
}

const testLabel = "faulty"

// settles makes a test answer for its goroutines: all that it starts, through whatever it
// calls, must have ended when everything that it registered for the end has run. Goroutines
// inherit the label of the one that started them, so tests beside this one do not count.
func settles(t *testing.T) {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(testLabel, t.Name())))
	t.Cleanup(func() {
		var left string
		late := time.Now().Add(15 * time.Second)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ; time.Now().Before(late); <-tick.C {
			http.DefaultClient.CloseIdleConnections()
			if left = labelled(t.Name()); left == "" {
				return
			}
		}
		t.Errorf("goroutines did not end:\n%.6000s", left)
	})
}

// stacks are those of all goroutines. One profile serves all tests that wait for it: it stops
// the world.
var stacks struct {
	sync.Mutex
	at   time.Time
	list []string
}

// labelled lists the stacks of a test's goroutines but for those that ask.
func labelled(name string) string {
	asked := time.Now()
	stacks.Lock()
	defer stacks.Unlock()
	if stacks.at.Before(asked) {
		var b bytes.Buffer
		stacks.at = time.Now()
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		stacks.list = strings.Split(b.String(), "\n\n")
	}
	var left []string
	for _, s := range stacks.list {
		if strings.Contains(s, fmt.Sprintf("%q:%q", testLabel, name)) && !strings.Contains(s, "router.labelled+") {
			left = append(left, s)
		}
	}
	return strings.Join(left, "\n\n")
}

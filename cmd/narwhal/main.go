// Command narwhal takes a fleet of LLM engines from a file to served, measured traffic.
//
// It promises one file per verb: flags in, result or problem out, an exit code.
// It refuses to decide: decisions live in the rooms that the verbs call.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := <-signals
		status := problem.Interrupted
		if s != syscall.SIGINT {
			status = problem.Terminated
		}
		cancel(interrupted(status))
		// A second signal does not wait for an orderly stop; one that comes at once is the
		// first again, sent to the process group as well.
		for first := time.Now(); ; {
			<-signals
			if time.Since(first) > soon {
				os.Exit(status.Exit())
			}
		}
	}()
	os.Exit(run(ctx, os.Args[1:], system()))
}

// soon is how soon after the first a signal counts as the same one.
const soon = time.Second

// again is the hint of every interrupted command.
const again = "run the same command again"

// interrupted is the cause of an orderly stop.
func interrupted(status problem.Status) error {
	return problem.New(status, "interrupted", "interrupted", again)
}

package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/loglines"
)

// lastLines is how long the end of a router waits for the reader of its log.
const lastLines = time.Second

// unwaited puts a queue before standard error, so that a reader that stands still holds nothing of
// the router. The end of the command gives it the last lines.
func (a *app) unwaited() {
	a.log = loglines.New(bare(a.err), func(to io.Writer, n int) {
		slog.New(slog.NewJSONHandler(to, nil)).Warn("log lines were dropped here: nobody read standard error", "lines", n)
	})
	a.err = visible{a.log}
}

// logDropped tells the router's metrics how many lines standard error did not take.
func (a *app) logDropped() func() int {
	if a.log == nil {
		return nil
	}
	return a.log.Dropped
}

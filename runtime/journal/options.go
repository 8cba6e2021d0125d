package journal

import (
	"context"
	"log/slog"
	"time"
)

// Limits of a journal whose Options leave them out.
const (
	defaultRows   = 32768
	defaultBytes  = 64 << 20
	firstBackoff  = 50 * time.Millisecond
	longestRetry  = 2 * time.Second
	closeLimit    = 10 * time.Second // for the last rows, whatever the caller's context says
	chunk         = 256 << 10        // bytes encoded for one write
	retryRotation = time.Second
)

// Options tune a writer; the zero value is a bounded queue, one file and no waiting.
type Options struct {
	// Rows and Bytes bound what waits for the disk, rows that are being written included;
	// 0 takes 32768 rows and 64 MiB. Bytes are those of the rows in memory, about.
	Rows  int
	Bytes int64
	// Lossless makes PutWait wait for room instead of losing the row.
	Lossless bool
	// MaxBytes and MaxAge end a file and begin the next; 0 = never. A file that nothing is
	// written to is not ended by its age.
	MaxBytes int64
	MaxAge   time.Duration
	// Keep is how many ended files stay beside the open one; 0 keeps all.
	Keep int
	// Clock is the router clock for events that the writer adds itself; nil leaves their
	// at out.
	Clock func() float64
	// Log gets a line when the file can no longer be written and when it can again, and one
	// when it went away; nil = none.
	Log *slog.Logger

	backoff time.Duration // the first one; tests shorten it
	now     func() time.Time
}

func (o Options) filled() Options {
	if o.Rows <= 0 {
		o.Rows = defaultRows
	}
	if o.Bytes <= 0 {
		o.Bytes = defaultBytes
	}
	if o.backoff <= 0 {
		o.backoff = firstBackoff
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

// Health is a writer's condition at one moment.
type Health struct {
	Written   uint64  `json:"written"` // lines in files, meta lines and events included
	Bytes     uint64  `json:"bytes"`
	Dropped   uint64  `json:"dropped"` // rows and events that were lost
	Queued    int     `json:"queued"`
	Held      int64   `json:"queued_bytes"`
	Capacity  int     `json:"queue_capacity"`
	HighWater int     `json:"queue_high_water"`
	Waiting   int     `json:"waiting"` // requests that wait for room
	Rotations uint64  `json:"rotations"`
	Reopened  uint64  `json:"reopened"` // files made anew because the path no longer named the open one
	Errors    uint64  `json:"write_errors"`
	Failing   bool    `json:"failing"`
	FailingS  float64 `json:"failing_s"` // how long; 0 when it does not
	Error     string  `json:"error"`     // the newest one while it fails; "" else
}

// never is the context of callers that do not wait.
var never = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

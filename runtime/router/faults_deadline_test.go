package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

const deadlineTold = "a stream that its deadline ends says so"

// The deadline of a request that streams ends it with one terminal event, as its client reads.
func TestFaultsDeadlineMidStream(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered, func(c *Config) { c.Fleet.Serving.RequestTimeoutS = 1 })
	q := matrixRow{}.ask(true)
	q["max_tokens"] = 400
	want := b.unsplit("p0", q)
	b.inject("d0", slow("d0", 20).Injection)
	var errs []error
	for i := range 2 {
		s := watch(long(t), b.client(), b.url, q, fmt.Sprint("late-", i), nil)
		if !strings.HasPrefix(want, s.text) || s.done > 0 {
			t.Errorf("a wrong end: %+v", s)
		}
		if s.status != 504 && s.short() != "event decode expired" { // 504: not even a first token came in time
			errs = append(errs, fmt.Errorf("the client sees %s: %w", s.short(), errors.Join(s.err)))
		}
		if err := b.idle(); err != nil {
			t.Error(err)
		}
	}
	judge(t, deadlineTold, errs...)
	for _, r := range b.rows() {
		if r.Terminal != journal.Expired || r.Status == nil {
			t.Errorf("row %+v", r)
		}
	}
}

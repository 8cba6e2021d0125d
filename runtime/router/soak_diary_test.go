//go:build soak

package router

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// diary counts a soak's answers and keeps only what went otherwise.
type diary struct {
	*soakBed
	done, failed atomic.Int64
	asked        []int // by each client
	mu           sync.Mutex
	others       map[string]sight
	wrong        []error
}

func (d *diary) note(rid string, s sight, err error) {
	if s.short() == "200" && err == nil {
		d.done.Add(1)
		return
	}
	d.failed.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.text, s.header = "", nil
	d.others[rid] = s
	if err != nil {
		d.wrong = append(d.wrong, fmt.Errorf("%s: %w", rid, err))
	}
}

// stream keeps one client busy.
func (d *diary) stream(ctx context.Context, c int) {
	for k := 0; ctx.Err() == nil; k++ {
		ask := stormAsk(c + k)
		streamed := (c+k)%4 != 0
		ask["stream"] = streamed
		rid := fmt.Sprintf("c%d-%d", c, k)
		own, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		s := watch(own, d.http, d.url, ask, rid, nil)
		cancel()
		d.note(rid, s, s.right(d.wants[(c+k)%stormPrompts], streamed))
		d.asked[c]++
	}
}

// close compares clients, journal and engines.
func (d *diary) close(t *testing.T) {
	t.Helper()
	errs := d.wrong
	if err := d.resting(); err != nil {
		errs = append(errs, err)
	}
	d.http.CloseIdleConnections()
	d.stop()
	errs = append(errs, d.audit(t)...)
	why := map[string]int{}
	for _, s := range d.others {
		why[s.short()]++
	}
	for _, k := range slices.Sorted(maps.Keys(why)) {
		t.Logf("%6d × %s", why[k], k)
	}
	t.Logf("%d done, %d failed", d.done.Load(), d.failed.Load())
	if len(errs) > 10 {
		errs = append(errs[:10], fmt.Errorf("and %d more", len(errs)-10))
	}
	for _, err := range errs {
		t.Error(err)
	}
}

// audit reads the journal as a stream: one row a request, and each agrees with what its
// client saw; a failed one must say why.
func (d *diary) audit(t *testing.T) (errs []error) {
	f, err := os.Open(d.journal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := make([]int, len(d.asked))
	_, err = journal.Read(f, func(l journal.Line) error {
		if l.Row == nil || l.Row.ClientRID == nil {
			return nil
		}
		var c, k int
		if _, err := fmt.Sscanf(*l.Row.ClientRID, "c%d-%d", &c, &k); err != nil {
			return nil
		}
		rows[c]++
		s, other := d.others[*l.Row.ClientRID]
		if !other {
			s = sight{status: 200, done: 1}
		}
		if err := agrees(s, *l.Row); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", *l.Row.ClientRID, err))
		}
		if l.Row.Terminal == journal.Failed && l.Row.Reason == nil {
			errs = append(errs, fmt.Errorf("%s failed without a reason", *l.Row.ClientRID))
		}
		return nil
	})
	if err != nil {
		errs = append(errs, err)
	}
	for c, n := range d.asked {
		if rows[c] != n {
			errs = append(errs, fmt.Errorf("client %d asked %d times and has %d rows", c, n, rows[c]))
		}
	}
	return errs
}

package router

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// rowsOf reads a journal that nobody has ended.
func rowsOf(t *testing.T, path string) map[string]sightRow {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, st, err := journal.ReadRows(f)
	if err != nil || st.Bad > 0 {
		t.Fatalf("journal: %+v, %v", st, err)
	}
	by := map[string]sightRow{}
	for _, r := range rows {
		if r.ClientRID != nil {
			x := by[*r.ClientRID]
			by[*r.ClientRID] = sightRow{r, x.count + 1}
		}
	}
	return by
}

type sightRow struct {
	journal.Row
	count int
}

// The router process is killed under load. Its streams are cut where they were, its engines
// let go of them, and the standby serves.
func TestFaultsRouterKilled(t *testing.T) {
	t.Parallel()
	settles(t)
	dir := t.TempDir()
	book := filepath.Join(dir, "primary.jsonl")
	var first string
	var kill func()
	s := stormy(t, shared(t, dir, "standby"), func(c *Config) {
		first, kill = childRouter(t, childPlan{Engines: c.Fleet.Engines, Journal: book, Lease: dir})
		waitsFor("http://" + first)(c)
	})
	for i := range 24 {
		if x := s.one(fmt.Sprint("before-", i), i, "http://"+first); x.short() != "200" {
			t.Fatalf("%+v", x)
		}
	}
	eventually(t, "the rows so far", func() bool { return len(rowsOf(t, book)) == 24 })
	stop := make(chan struct{})
	var all sync.WaitGroup
	var served atomic.Int64
	for c := range 12 {
		all.Go(func() { s.across(stop, fmt.Sprint("c", c), c, first, &served) })
	}
	eventually(t, "load", func() bool { return served.Load() > 60 })
	kill()
	at := time.Now()
	eventually(t, "the standby serves", func() bool { return s.get("/ready", nil) == 200 })
	t.Logf("the standby was ready %v after the kill", time.Since(at).Round(time.Millisecond))
	before := served.Load()
	eventually(t, "load again", func() bool { return served.Load() > before+60 })
	close(stop)
	all.Wait()
	for _, err := range s.errs {
		t.Error(err)
	}
	if err := s.idle(); err != nil {
		t.Error(err)
	}
	lost := s.compare(t, rowsOf(t, book))
	t.Logf("%d answers, %d of the killed router without a row: %v", served.Load(), lost, s.tally())
}

// across asks the first router, and the second one once the first is gone.
func (s *storm) across(stop chan struct{}, name string, i int, first string, served *atomic.Int64) {
	url := "http://" + first
	for k := 0; ; k++ {
		select {
		case <-stop:
			return
		default:
		}
		ask := stormAsk(i + k)
		ask["stream"] = true
		x := watch(s.t.Context(), s.http, url, ask, fmt.Sprint(name, "-", k), nil)
		var err error
		switch {
		case x.err != nil && url != s.url:
			if !strings.HasPrefix(s.wants[(i+k)%stormPrompts], x.text) {
				err = fmt.Errorf("a wrong word before the cut: %q", x.text)
			}
			url = s.url
		case x.status == 503 && url == s.url:
			tick := time.NewTimer(20 * time.Millisecond)
			<-tick.C
		default:
			err = x.right(s.wants[(i+k)%stormPrompts], true)
			served.Add(1)
		}
		s.note(x, err)
	}
}

// compare looks for every answer's row in the first router's journal and in the second's.
func (s *storm) compare(t *testing.T, first map[string]sightRow) (lost int) {
	second := s.rows()
	for rid, x := range s.seen {
		r, ok := first[rid]
		i := slices.IndexFunc(second, func(r journal.Row) bool { return r.ClientRID != nil && *r.ClientRID == rid })
		switch {
		case x.err != nil && !ok, i >= 0 && !ok:
		case !ok:
			lost++ // answered, and killed before its row was written
		case r.count != 1 || i >= 0:
			t.Errorf("%s has more than one row", rid)
		default:
			if err := agrees(x, r.Row); err != nil {
				t.Errorf("%s: %v", rid, err)
			}
		}
	}
	if lost > 12 {
		t.Errorf("%d answers without a row: more than were in flight", lost)
	}
	return lost
}

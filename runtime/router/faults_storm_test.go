package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// storm is load on a fleet while something goes wrong in it.
type storm struct {
	*testbed
	*crowd
	mu    sync.Mutex // guards the bed's engines while they are replaced
	wants []string   // right texts of its prompts
}

const stormPrompts, stormTokens = 16, 24

// stormy is a fleet of three pairs without prefix caches, so that every answer needs a handoff.
func stormy(t *testing.T, tweaks ...tweak) *storm {
	plain := func(_ int, c *simulated.Config) { stormEngine(c) }
	fast := func(c *Config) {
		f := &c.Fleet
		f.Engine.Tokenize, f.Serving.Admission, f.Serving.MaxConnections = false, "open", 4096
		f.Recovery.LivenessEvery, f.Recovery.ReadmitEvery, f.Engine.HealthTimeoutS = 2, 2, 1
		f.Engine.FirstTokenTimeoutS, f.Engine.DecodeReadTimeoutS, f.Serving.PrefillTimeoutS = 3, 3, 3
	}
	s := &storm{testbed: startFleet(t, 3, 3, plain, append([]tweak{fast}, tweaks...)...), crowd: newCrowd(t)}
	for i := range stormPrompts {
		s.wants = append(s.wants, s.unsplit("p0", stormAsk(i)))
	}
	return s
}

func stormEngine(c *simulated.Config) {
	c.PrefixCaching, c.LeaseS, c.MaxNumSeqs, c.Blocks = false, 2, 512, 16385
	c.HandshakeLimit = 500_000_000
}

func stormAsk(i int) map[string]any {
	return map[string]any{"prompt": promptIDs(i % stormPrompts), "max_tokens": stormTokens, "ignore_eos": true, "temperature": 0}
}

// blow keeps a number of clients busy until ctx ends, and trouble beside them.
func (s *storm) blow(ctx context.Context, clients int, trouble func(ctx context.Context)) {
	var all, beside sync.WaitGroup
	beside.Go(func() { trouble(ctx) })
	for c := range clients {
		all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				s.one(fmt.Sprintf("c%d-%d", c, k), c+k, s.url)
			}
		})
	}
	all.Wait()
	beside.Wait()
}

// one sends a request that is not cut short and judges its answer.
func (s *storm) one(rid string, i int, url string) sight {
	ask := stormAsk(i)
	streamed := i%3 != 0
	ask["stream"] = streamed
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	x := watch(ctx, s.http, url, ask, rid, nil)
	s.note(x, x.right(s.wants[i%stormPrompts], streamed))
	return x
}

// kill ends one engine as SIGKILL does and starts another process at its address.
func (s *storm) kill(i int) {
	old := s.engines[i]
	addr := old.Addr()
	old.Kill()
	c := simulated.Config{Simulated: quick(), Model: modelName, Listen: addr, SideChannel: "127.0.0.1:0"}
	stormEngine(&c)
	eventually(s.t, "engine back", func() bool {
		e, err := simulated.New(c)
		if err != nil || e.Start(s.t.Context()) != nil {
			return false
		}
		s.t.Cleanup(e.Stop)
		s.mu.Lock()
		s.engines[i] = e
		s.mu.Unlock()
		return true
	})
}

// outBeside reports whether the router does without another engine of the role of engine i.
func (s *storm) outBeside(i int) (out bool) {
	s.router.own.do(func() {
		nodes := s.router.own.nodes
		for k, n := range nodes {
			out = out || k != i && n.role == nodes[i].role && n.ejected != ""
		}
	})
	return out
}

// calm waits for rest and compares what clients, journal and engines tell.
func (s *storm) calm() {
	s.t.Helper()
	var errs []error
	if err := s.idle(); err != nil { // by notices and the end of leases alone
		errs = append(errs, err)
	}
	s.http.CloseIdleConnections()
	rows := s.rows()
	errs = append(errs, s.errs...)
	errs = append(errs, reconcile(s.seen, rows)...)
	if len(errs) > 8 {
		errs = append(errs[:8], fmt.Errorf("and %d more", len(errs)-8))
	}
	judge(s.t, s.t.Name(), errs...)
	tally := s.tally()
	for _, k := range slices.Sorted(maps.Keys(tally)) {
		s.t.Logf("%6d × %s", tally[k], k)
	}
	retried, why := 0, map[string]int{}
	for _, r := range rows {
		retried += max(0, r.Attempts-1)
		if r.Terminal == journal.Failed {
			why[outcome(r)+" / "+failuresOf(r)]++
		}
	}
	s.t.Logf("%d rows, %d retries", len(rows), retried)
	for _, k := range slices.Sorted(maps.Keys(why)) {
		s.t.Logf("%6d × %s", why[k], k)
	}
}

// reconcile compares every client's view with the one row of its request.
func reconcile(seen map[string]sight, rows []journal.Row) (errs []error) {
	by := map[string][]journal.Row{}
	for _, r := range rows {
		if r.ClientRID != nil {
			by[*r.ClientRID] = append(by[*r.ClientRID], r)
		}
	}
	for rid, s := range seen {
		list := by[rid]
		delete(by, rid)
		if len(list) != 1 {
			errs = append(errs, fmt.Errorf("%s saw %s and has %d rows", rid, s.short(), len(list)))
			continue
		}
		if err := agrees(s, list[0]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rid, err))
		}
	}
	for rid := range by {
		errs = append(errs, fmt.Errorf("a row of %s, who never asked", rid))
	}
	return errs
}

func agrees(s sight, r journal.Row) error {
	ok := false
	switch {
	case s.err != nil:
		return nil // its own connection
	case s.status == http.StatusOK && len(s.failed) == 0:
		ok = r.Terminal == journal.Completed
	case s.status == http.StatusOK:
		ok = (r.Terminal == journal.Failed || r.Terminal == journal.Expired) && *r.Status == 200 && len(r.Failures) > 0
	default:
		ok = r.Status != nil && *r.Status == s.status && r.Terminal != journal.Completed
	}
	if !ok {
		return fmt.Errorf("the client saw %s, its row says %s", s.short(), outcome(r))
	}
	return nil
}

// clean fails for answers that a trouble does not explain.
func (s *storm) only(allowed ...string) error {
	var errs []error
	for k, n := range s.tally() {
		if !slices.ContainsFunc(allowed, func(p string) bool { return strings.HasPrefix(k, p) }) {
			errs = append(errs, fmt.Errorf("%d × %s", n, k))
		}
	}
	return errors.Join(errs...)
}

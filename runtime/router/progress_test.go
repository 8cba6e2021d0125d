package router

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// hasty is a router that looks at engines that are late by a second, and asks them for one more.
func hasty(c *Config) {
	patience(1)(c)
	c.Fleet.Engine.DecodeReadTimeoutS = 30
	c.Fleet.Engine.HealthTimeoutS = 1
	c.Fleet.Serving.Admission = "open"
	c.Fleet.Recovery.ReadmitEvery = 2
}

// unpinned lets engines stand in for others.
func unpinned(c *Config) {
	for i := range c.Fleet.Engines {
		c.Fleet.Engines[i].Pin = false
	}
}

// breaks lists what the journal tells of ejections and readmissions.
func (b *testbed) breaks() (list []string) {
	b.stop()
	readEvents(b.t, b.journal, func(e journal.Event) {
		switch e.Name {
		case "engine_ejected":
			list = append(list, fmt.Sprint(e.Fields["iid"], " out: ", e.Fields["cause"]))
		case "engine_readmitted":
			list = append(list, fmt.Sprint(e.Fields["iid"], " back: ", e.Fields["evidence"]))
		}
	})
	return list
}

// A healthy prefill engine that does nothing with what it holds costs its requests one attempt, and
// returns with a token.
func TestStuckPrefillEngine(t *testing.T) {
	t.Parallel()
	settles(t)
	type stuckCase struct {
		prefill, attempts int
		paused            []string
		streamed          bool
	}
	var cases []stuckCase
	for _, streamed := range []bool{false, true} {
		cases = append(cases,
			stuckCase{2, 2, []string{"p0"}, streamed},       // another one prefills
			stuckCase{1, 2, []string{"p0"}, streamed},       // the decode engines do
			stuckCase{2, 3, []string{"p0", "p1"}, streamed}) // they do after both
	}
	name := func(c stuckCase) string { return fmt.Sprintf("%v of %d/streamed %v", c.paused, c.prefill, c.streamed) }
	together(t, cases, name, func(t *testing.T, c stuckCase) {
		b := startFleet(t, c.prefill, 2, nil, steered, hasty, unpinned, func(f *Config) { f.Fleet.Serving.MaxAttempts = c.attempts })
		ask := matrixRow{}.ask(c.streamed)
		want := b.unsplit("d0", ask)
		for _, p := range c.paused {
			b.inject(p, simulated.Injection{Kind: "pause"})
		}
		s := watch(limit(t), b.client(), b.url, ask, "row", nil)
		if err := s.right(want, c.streamed); s.short() != "200" || err != nil {
			t.Errorf("%s: %v", s.short(), err)
		}
		for _, p := range c.paused {
			b.inject(p, simulated.Injection{Kind: "clear"})
			eventually(t, p+" is back", func() (ok bool) {
				b.router.own.do(func() { n := b.router.own.node(p); ok = n.ejected == "" && n.live() })
				return ok
			})
		}
		if err := b.idle(); err != nil {
			t.Error(err)
		}
		rows, breaks := b.rows(), b.breaks()
		var failures []string
		for _, p := range c.paused {
			failures = append(failures, "prefill engine_timeout "+p+" allowed")
			for _, e := range []string{p + " out: inference_probe", p + " back: verification"} {
				if !slices.Contains(breaks, e) {
					t.Errorf("no %q in %q", e, breaks)
				}
			}
		}
		if got := failuresOf(rows[0]); got != strings.Join(failures, ", ") {
			t.Errorf("failures %q", got)
		}
	})
}

// Engines that are slow, busy or badly known are neither ejected nor cut, however late they are.
func TestLateEnginesAreLeftAlone(t *testing.T) {
	t.Parallel()
	settles(t)
	type lateCase struct {
		name     string
		each     func(*simulated.Config)
		fast     float64 // how many times too fast the profile has it
		slow     float64 // factor on the engine's steps
		others   int     // requests that somebody else sends to the engine before
		requests int
		tokens   int // of a prompt
	}
	// A step takes 0.4 s and holds one prompt.
	oneByOne := func(c *simulated.Config) { c.PrefillA, c.MaxBatched = 0.4, 100 }
	together(t, []lateCase{
		{name: "a slow engine", each: oneByOne, slow: 8, requests: 1},
		{name: "a slow engine's step beyond all prices", each: func(c *simulated.Config) {}, slow: 1400, requests: 1},
		{name: "a long queue", each: oneByOne, requests: 10},
		{name: "a queue of somebody else", each: oneByOne, fast: 100, others: 20, requests: 1},
		{name: "a profile five times too fast", each: oneByOne, fast: 5, requests: 10},
		{name: "its long document", each: func(c *simulated.Config) { c.PrefillB = 5e-4 }, fast: 5, requests: 1, tokens: 7500},
		{name: "a burst", each: func(c *simulated.Config) { c.PrefillB = 5e-4 }, requests: 60},
		{name: "a long document in pieces", each: func(c *simulated.Config) { c.PrefillA, c.MaxBatched = 0.4, 256 }, fast: 100, requests: 1, tokens: 5000},
	}, func(c lateCase) string { return c.name }, func(t *testing.T, c lateCase) {
		b := startFleet(t, 1, 1, func(i int, s *simulated.Config) {
			s.PrefixCaching = false
			if i == 0 {
				c.each(s)
			}
		}, steered, hasty, func(f *Config) {
			if c.fast > 0 {
				r := &f.Profiles.Rows[0]
				r.TTFTB, r.TTFTC = r.TTFTB/c.fast, r.TTFTC/c.fast
			}
		})
		if c.slow > 0 {
			b.inject("p0", simulated.Injection{Kind: "slow", Factor: c.slow})
		}
		ask := func(seed int) map[string]any {
			ids := promptIDs(seed)
			for len(ids) < c.tokens {
				ids = append(ids, ids[:96]...)
			}
			return map[string]any{"prompt": ids, "max_tokens": 4, "ignore_eos": true}
		}
		var all sync.WaitGroup
		defer all.Wait()
		for i := range c.others {
			all.Go(func() { watch(long(t), b.client(), b.engine("p0").URL(), ask(100+i), "", nil) })
		}
		if c.others > 0 {
			b.until("p0", func(a simulated.Account) bool { return a.Running+a.Waiting >= c.others-1 })
		}
		for i := range c.requests {
			all.Go(func() {
				if s := watch(long(t), b.client(), b.url, ask(i), "row", nil); s.short() != "200" {
					t.Errorf("%s", s.short())
				}
			})
		}
		all.Wait()
		for _, r := range b.rows() {
			if len(r.Failures) > 0 {
				t.Errorf("failures %q", failuresOf(r))
			}
		}
		if got := b.breaks(); len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
}

func TestWhenAnEngineIsLate(t *testing.T) {
	claims := func(list ...claim) (out []*claim) {
		for i := range list {
			out = append(out, &list[i])
		}
		return out
	}
	for _, c := range []struct {
		name    string
		claims  []*claim
		movedAt float64
		risk    float64
		times   float64
		until   float64 // seconds on the router clock; 0 = never late
	}{
		{"nothing to prefill", nil, 0, 1, 1, 0},
		{"a short prompt has the first token's limit", claims(claim{at: 10, own: 0.1}), 0, 1, 1, 12.5},
		{"a long one many times its price", claims(claim{at: 10, own: 1}), 0, 1, 1, 18},
		{"at the engine's quantile", claims(claim{at: 10, own: 1}), 0, 1.5, 1, 22},
		{"its queue too", claims(claim{at: 10, own: 1, queue: 2}), 0, 1, 1, 34},
		{"which has gone", claims(claim{at: 10, own: 1, queue: 2}), 12, 1, 1, 20},
		{"what has moved begins anew", claims(claim{at: 10, own: 0.1}), 20, 1, 1, 22.5},
		{"all that had come by then may be in one step", claims(claim{at: 10, own: 1}, claim{at: 11, own: 1}), 11, 1, 1, 27},
		{"later ones do not count", claims(claim{at: 10, own: 1}, claim{at: 11, own: 1}), 0, 1, 1, 18},
		{"an engine that runs a batch", claims(claim{at: 10, own: 0.1}), 0, 1, runningLater, 20},
	} {
		n := &node{prefilling: c.claims, movedAt: c.movedAt, risk: c.risk}
		if c.until == 0 {
			if n.late(1e6, 2.5, c.times) {
				t.Errorf("%s: late", c.name)
			}
			continue
		}
		if n.late(c.until-0.01, 2.5, c.times) || !n.late(c.until+0.01, 2.5, c.times) {
			t.Errorf("%s: not just after %g s", c.name, c.until)
		}
		n.made.Add(1)
		if n.late(c.until+0.01, 2.5, c.times) {
			t.Errorf("%s: late although it made a token", c.name)
		}
	}
}

// Blocks that unread handoffs pin let an engine wait for their leases, which is not its fault.
func TestAFullCacheIsNoDoubt(t *testing.T) {
	n := &node{prefilling: []*claim{{input: 900}}}
	n.curve.MaxKVTokens = 10000
	for usage, waits := range map[float64]bool{0: false, 0.5: false, 0.9: false, 0.92: true, 1: true} {
		if n.waitsForRoom(&engine.State{Usage: usage}) != waits {
			t.Errorf("usage %g: not %v", usage, waits)
		}
	}
}

func TestWhatCountsAsWork(t *testing.T) {
	for name, c := range map[string]struct {
		s      engine.State
		worked bool
	}{
		"nothing":            {engine.State{}, false},
		"an iteration":       {engine.State{Iterations: 1}, true},
		"its tokens":         {engine.State{IterationSum: 1}, true},
		"a token":            {engine.State{GenerationTokens: 1}, true},
		"a prompt":           {engine.State{PromptTokens: 1}, true},
		"an answer":          {engine.State{FinishedOK: 1}, true},
		"a transfer":         {engine.State{Transfers: 1}, true},
		"another process":    {engine.State{ProcessStart: 1}, true},
		"a lease that ended": {engine.State{Expired: 1, Usage: 0.1}, false},
		"a longer queue":     {engine.State{Waiting: 5}, false},
	} {
		if worked(&engine.State{}, &c.s) != c.worked {
			t.Errorf("%s: not %v", name, c.worked)
		}
	}
}

// An engine whose blocks are pinned by a handoff that nobody reads goes on when its lease ends.
func TestPinnedEnginesAreLeftAlone(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, func(_ int, c *simulated.Config) { c.Blocks, c.LeaseS, c.MaxModelLen = 12, 5, 160 }, steered, hasty)
	b.inject("d0", simulated.Injection{Kind: "notice-lost"})
	for i := range 2 {
		if a := b.complete(map[string]any{"prompt": promptIDs(i), "max_tokens": 4}); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for _, r := range b.rows() {
		if len(r.Failures) > 0 {
			t.Errorf("failures %q", failuresOf(r))
		}
	}
	if got := b.breaks(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

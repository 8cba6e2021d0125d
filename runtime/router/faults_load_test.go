package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// every calls f until ctx ends.
func every(ctx context.Context, period time.Duration, f func(n int)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(n)
		}
	}
}

// excusedFaults are the answers that a dying engine explains.
var excusedFaults = []string{"200", "event decode failed", "502 ", "504 ", "503 backend_unavailable", "503 no_schedulable_engines", "429 "}

func TestFaultsUnderLoadKill(t *testing.T) {
	t.Parallel()
	settles(t)
	s := stormy(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	kills, beside := 0, 0
	s.blow(ctx, 40, func(ctx context.Context) {
		every(ctx, 300*time.Millisecond, func(n int) {
			i := []int{0, 3, 1, 4, 2, 5}[n%6]
			if s.outBeside(i) {
				beside++
			}
			s.kill(i)
			kills++
		})
	})
	judge(t, "answers under kills", s.only(excusedFaults...))
	t.Logf("%d kills, %d of them while another engine of the role was out", kills, beside)
	s.calm()
	var errs []error
	for _, r := range s.rows() {
		if r.Terminal == journal.Failed && strings.HasSuffix(failuresOf(r), noSharedBudget) {
			errs = append(errs, errors.New(failuresOf(r)))
		}
	}
	if beside == 0 { // on a slow machine engines are not back in time
		judge(t, restartFree, errs...)
	}
}

const restartFree = "a restart of one engine of three costs no client an error before the first byte"

// moods are what an engine can do wrong while it lives. Each ends by "clear" or by itself.
var moods = []simulated.Injection{{Kind: "hang"}, {Kind: "garbage", Count: 3}, {Kind: "trickle"}, {Kind: "eof", After: 2, Count: 3}, {Kind: "eof", Count: 3},
	{Kind: "reset", After: 5, Count: 3}, {Kind: "error", After: 3, Count: 3}, {Kind: "error", Count: 3}, {Kind: "stall", After: 4, Count: 2}, {Kind: "freeze"}, {Kind: "pause"},
	{Kind: "busy", Count: 5}, {Kind: "drop-handoff", Count: 3}, {Kind: "corrupt-handoff", Field: "remote_host", Count: 3}, {Kind: "corrupt-handoff", Field: "remote_block_ids", Value: []byte("[[]]"), Count: 3},
	{Kind: "read-failure", Count: 3}, {Kind: "notice-lost", Count: 3}, {Kind: "refuse", ForS: 0.2}, {Kind: "side-dead"}, {Kind: "split"}, {Kind: "split-utf8"}, {Kind: "status", Status: 500, Count: 3},
	{Kind: "status", Status: 429, Count: 3}, {Kind: "slow", Factor: 20}}

func TestFaultsUnderLoadMoods(t *testing.T) {
	t.Parallel()
	settles(t)
	s := stormy(t, func(c *Config) {
		c.Fleet.Engine.FirstTokenTimeoutS, c.Fleet.Engine.DecodeReadTimeoutS, c.Fleet.Serving.PrefillTimeoutS = 0.6, 0.6, 0.6
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	rnd := rand.New(rand.NewPCG(7, 7))
	s.blow(ctx, 32, func(ctx context.Context) {
		every(ctx, 200*time.Millisecond, func(n int) {
			e := s.engines[rnd.IntN(len(s.engines))]
			for _, x := range s.engines {
				_ = x.Inject(simulated.Injection{Kind: "clear"})
			}
			if err := e.Inject(moods[n%len(moods)]); err != nil {
				t.Error(err)
			}
		})
	})
	for _, x := range s.engines {
		_ = x.Inject(simulated.Injection{Kind: "clear"})
		_ = x.Inject(simulated.Injection{Kind: "refuse", On: new(bool)})
	}
	judge(t, "answers under moods", s.only(excusedFaults...))
	s.calm()
}

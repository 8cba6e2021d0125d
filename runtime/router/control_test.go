package router

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// offer sends requests at a steady rate until stop says so, and waits for all of them.
func (b *testbed) offer(rate float64, words, tokens int, stop func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.t.Cleanup(cancel)
	for i := 0; !stop(); i++ {
		<-tick.C
		wg.Go(func() {
			text := fmt.Sprintf("%d-%d ", time.Now().UnixNano(), i) + strings.Repeat("word ", words)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions",
				strings.NewReader(fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"ignore_eos":true}`, text, tokens)))
			if err != nil {
				return
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		})
	}
}

func TestControllerMovesEnginesWithTheLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds of traffic")
	}
	sim := quick()
	sim.PrefillA, sim.PrefillB, sim.DecodeD, sim.DecodeE = 0.01, 2e-4, 0.005, 0.002
	sim.MaxModelLen, sim.PrefixCaching = 4096, false
	b := startBed(t, 2, 2, sim, func(c *Config) {
		c.Fleet.SLO.TTFTS, c.Fleet.SLO.TPOTS = 2, 0.05
		c.Fleet.Controller.Thresholds.CooldownS = 0.5
		r := &c.Fleet.Controller.Reactive
		r.StepS, r.WindowS, r.EvidenceSpanS, r.MinArrivals, r.DemandFloor, r.Confirmations = 0.25, 3, 1, 5, 0.2, 2
		for i := range c.Profiles.Rows {
			c.Profiles.Rows[i].TTFTA = 0
		}
	})
	late := time.Now().Add(12 * time.Second)
	pools := func() (p, d int) { s := b.state(); return len(s.Pools["prefill"]), len(s.Pools["decode"]) }
	// Documents: some 1500 tokens in, few out.
	b.offer(8, 1500, 4, func() bool { p, _ := pools(); return p >= 3 || time.Now().After(late) })
	if p, d := pools(); p != 3 || d != 1 {
		t.Fatalf("under documents: %d prefill, %d decode; %+v", p, d, b.state().Control["last_decision"])
	}
	late = time.Now().Add(12 * time.Second)
	// Chats: short prompts, long answers.
	b.offer(25, 10, 60, func() bool { _, d := pools(); return d >= 3 || time.Now().After(late) })
	if p, d := pools(); p != 1 || d != 3 {
		t.Fatalf("under chats: %d prefill, %d decode; %+v", p, d, b.state().Control["last_decision"])
	}
	s := b.state()
	if len(s.Flips) < 3 || s.Failed != 0 || s.Control["flips"].(map[string]any)["reactive:decode"].(float64) < 2 {
		t.Errorf("flips %+v, failed %d", s.Flips, s.Failed)
	}
	moved, decided := 0, 0
	b.stop()
	readEvents(t, b.journal, func(e journal.Event) {
		switch e.Name {
		case "role_moved":
			moved++
		case "controller_decision":
			decided++
		}
	})
	if moved != len(s.Flips) || decided < moved {
		t.Errorf("%d moves and %d decisions in the journal, %d flips", moved, decided, len(s.Flips))
	}
}

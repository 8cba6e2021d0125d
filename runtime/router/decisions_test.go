package router

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// busyBed serves enough at once that seats are short, prefills wait and are lent, prompts share
// their heads and a leg fails, and returns the journal.
func busyBed(t *testing.T) (b *testbed) {
	sim := quick()
	sim.MaxNumSeqs, sim.PrefillB = 4, 2e-4
	b = startBed(t, 2, 2, sim, func(c *Config) {
		r := &c.Fleet.Controller.Reactive
		c.LendFrom = 0.05
		r.StepS, r.EvidenceSpanS, c.Fleet.SLO.TTFTS, c.Fleet.Controller.Thresholds.CooldownS = 0.1, 0.2, 0.4, 0.1
	})
	for _, iid := range []string{"d0", "d1"} {
		b.inject(iid, simulated.Injection{Kind: "status", Status: 503, Count: 1})
	}
	b.complete(map[string]any{"prompt": prompt, "max_tokens": 4})
	for range 2 {
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				b.complete(map[string]any{"prompt": strings.Repeat(prompt, 1+i%7) + fmt.Sprint(i), "max_tokens": 4 + i%40})
			})
		}
		all.Wait()
	}
	b.stop()
	return b
}

// The journal of a live run has all that each decision was made from, and shows each member
// that somebody changed.
func TestJournalMakesItsDecisionsAgain(t *testing.T) {
	b := busyBed(t)
	r, err := replay.Path(b.journal)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d placements, %d evaluations", r.Placements, r.Evaluations)
	if r.Placements < 61 || r.Evaluations == 0 || r.Without != 0 || r.Differ != 0 || r.BadLines != 0 {
		t.Errorf("%+v", r)
	}
	whole, err := os.ReadFile(b.journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"asked":[{`, `"slack":{`, `"cached":[`, `"earlier_decisions":[`, `"lend":`} {
		if !strings.Contains(string(whole), name) {
			t.Errorf("the run brought no %s about", name)
		}
	}
	for what, change := range map[string]struct{ from, to, field string }{
		"a choice":     {`"placed":true,"p":"p0"`, `"placed":true,"p":"p1"`, "decision.p"},
		"an input":     {`"first":true,"request":{"rid":"`, `"first":true,"request":{"rid":"x`, "decision"},
		"an objective": {`"by":"reactive"`, `"by":"somebody"`, "by"},
		"a curve":      {`"intercept":0.002`, `"intercept":0.004`, "decisions[0].d"},
		"a promise":    {`"ttft_s":0.4`, `"ttft_s":0.004`, "decisions[0].d"},
	} {
		path := t.TempDir() + "/j.jsonl"
		changed := strings.ReplaceAll(string(whole), change.from, change.to)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := replay.Path(path)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, d := range r.Differences {
			found = found || strings.Contains(d.Field, change.field) && d.Row != ""
		}
		if r.Differ == 0 || !found {
			out, _ := json.Marshal(r)
			t.Errorf("%s: %.600s", what, out)
		}
	}
}

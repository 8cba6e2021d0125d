package router

import (
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func thrice(c *Config) {
	patient(c)
	c.Fleet.Serving.MaxAttempts, c.Fleet.Serving.RetryBudget = 3, 1000
}

// A request whose first two legs failed gets its third, prefilled anew on engines that it has
// not tried, and nothing of the failed legs stays at an engine.
func TestThirdAttempt(t *testing.T) {
	for _, c := range []struct {
		name string
		fail []string
		in   simulated.Injection
	}{
		{"prefills fail", []string{"p0", "p1"}, simulated.Injection{Kind: "leg1-status", Status: 500, Count: -1}},
		{"decodes fail", []string{"d0", "d1"}, simulated.Injection{Kind: "leg2-status", Status: 500, Count: -1}},
		{"decodes end early", []string{"d0", "d1"}, simulated.Injection{Kind: "eof", Count: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := startBed(t, 3, 3, quick(), thrice)
			want := text(t, post(t, limit(t), b.engine("p2").URL()+"/v1/completions", body(false, 8)).body)
			for _, iid := range c.fail {
				b.inject(iid, c.in)
			}
			thirds := 0
			for range 40 {
				if a := b.complete(body(false, 8)); a.status != 200 || text(t, a.body) != want {
					rows := b.rows()
					t.Fatalf("%d %s: %+v", a.status, a.body, rows[len(rows)-1].Failures)
				}
				if s := b.state().Serving; s["retry_attempts"].(float64) > s["served_after_retry"].(float64) {
					thirds++
					break
				}
			}
			if thirds == 0 {
				t.Fatal("no request needed its third attempt")
			}
			for _, e := range b.engines {
				_ = e.Inject(simulated.Injection{Kind: "expire"})
			}
			b.idleSoon()
			for _, row := range b.rows() {
				if row.Attempts != 3 {
					continue
				}
				var ps, ds []string
				for _, f := range row.Failures {
					ps, ds = append(ps, *f.Prefill), append(ds, *f.Decode)
				}
				ps, ds = append(ps, *row.Prefill), append(ds, *row.Decode)
				used := ps
				if c.fail[0] == "d0" {
					used = ds
					if slices.Sort(ps); len(slices.Compact(ps)) != 3 {
						t.Errorf("producers %v", ps)
					}
				}
				if slices.Sort(used); len(slices.Compact(used)) != 3 || row.Terminal != journal.Completed {
					t.Errorf("prefilled on %v, decoded on %v: %s", ps, ds, row.Terminal)
				}
			}
		})
	}
}

// A pair's other leg is ended before the next attempt, up to the third.
func TestThirdAttemptOfAPair(t *testing.T) {
	b := sglangBedOf(t, thrice, "prefill", "prefill", "prefill", "decode", "decode", "decode")
	for _, i := range []int{3, 4} {
		if err := b.engines[i].Inject(simulated.Injection{Kind: "leg2-status", Status: 500, Count: -1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		if a := b.complete(body(false, 8)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if s := b.state().Serving; s["retry_attempts"].(float64) > s["served_after_retry"].(float64) {
			b.idleSoon()
			return
		}
	}
	t.Fatal("no request needed its third attempt")
}

// All attempts share one deadline.
func TestThirdAttemptHasNoTimeOfItsOwn(t *testing.T) {
	b := startBed(t, 3, 3, quick(), thrice, func(c *Config) {
		c.Fleet.Engine.FirstTokenTimeoutS, c.Fleet.Serving.RequestTimeoutS = 0.4, 1
	})
	for _, iid := range []string{"d0", "d1", "d2"} {
		b.inject(iid, simulated.Injection{Kind: "stall", Count: -1})
	}
	if a := b.complete(body(false, 8)); a.status != 504 {
		t.Errorf("%d %s", a.status, a.body)
	}
	row := b.rows()[0]
	if row.Attempts != 3 || row.Terminal != journal.Expired || *row.Reason != model.ReasonDeadline || row.Duration > 1.3 {
		t.Errorf("%d attempts, %s after %v s: %+v", row.Attempts, row.Terminal, row.Duration, row.Failures)
	}
}

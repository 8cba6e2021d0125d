package main

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// The plans have the published counts, in order of time, and the same requests each time.
func TestRebuiltWorkloads(t *testing.T) {
	for _, c := range []struct {
		plan                  plan
		all, documents, parts int
		seconds               float64
	}{{chatDocument, 14250, 7440, 11, 1320}, {mixedHour, 14419, 6310, 9, 3600}} {
		for _, f := range rebuiltFleets {
			as, again := c.plan.arrivals(f, 1), c.plan.arrivals(f, 1)
			documents := 0
			for i, a := range as {
				if a != again[i] || i > 0 && a.At < as[i-1].At || a.At > c.seconds {
					t.Fatalf("%s: arrival %d is %+v", c.plan.name, i, a)
				}
				if a.Class == "document" {
					documents++
				}
			}
			if len(as) != c.all || documents != c.documents || f.model.Engines != 6 || float64(c.parts)*c.plan.phase != c.seconds {
				t.Errorf("%s: %d requests, %d documents", c.plan.name, len(as), documents)
			}
			for k := range c.plan.counts {
				if len(c.plan.counts[k]) != c.parts {
					t.Errorf("%s: %d phases of class %d", c.plan.name, len(c.plan.counts[k]), k)
				}
			}
		}
	}
	if n := chatDocument.total("chat"); n != 6810 {
		t.Errorf("%d chats", n)
	}
}

// No request of a plan is beyond what its engines can do in time alone, so that attainment
// tells of policies.
func TestRebuiltWorkloadsCanBeServed(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates two hours")
	}
	for _, p := range []plan{chatDocument, mixedHour} {
		for _, f := range rebuiltFleets {
			c := p.config(f, 1)
			c.Policies = []string{"default", "reactive-fifo"}
			r, err := simulate.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: bound %.4f, best static %s %.4f", c.Workload, r.Hindsight.Attainment, r.BestStatic.Policy, r.BestStatic.Attainment)
			for _, a := range r.Arms {
				t.Logf("  %s %.4f, %d moves, refused %d", a.Policy, a.Attainment, a.Moves, a.Refused)
				for _, k := range a.Classes {
					t.Logf("    %s %.4f p95 %.0f ms", k.Class, k.Attainment, *k.TTFT.P95)
				}
			}
			if r.Hindsight.Attainment < 0.97 {
				t.Errorf("%s: no policy does better than %.4f", c.Workload, r.Hindsight.Attainment)
			}
		}
	}
}

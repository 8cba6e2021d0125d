package main

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// classFloor is the share of each class that the router's own policy must serve within the promise
// on the published workloads, rebuilt: what is refused is never a class.
const classFloor = 0.8

func TestNoClassIsSacrificed(t *testing.T) {
	for _, p := range []plan{chatDocument, mixedHour} {
		for _, f := range rebuiltFleets {
			for seed := uint64(1); seed < 3; seed++ {
				c := p.config(f, seed)
				c.Policies = []string{"default"}
				r, err := simulate.Run(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range r.Arms[0].Classes {
					t.Logf("%s, %s, seed %d: of %s %.2f %%", p.name, f.name, seed, k.Class, 100*k.Attainment)
					if k.Attainment < classFloor {
						t.Errorf("%s, %s, seed %d: of %s only %d of %d", p.name, f.name, seed, k.Class, k.Qualified, k.Offered)
					}
				}
			}
		}
	}
}

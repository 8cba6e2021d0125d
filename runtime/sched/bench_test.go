package sched

import (
	"fmt"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// fleet has a fourth of its engines in prefill; a share of each is busy.
func fleet(n int) model.Snapshot {
	var s []model.EngineView
	for i := range n {
		e := engine(fmt.Sprintf("e%04d", i), model.Decode)
		if i%4 == 0 {
			e.Role = model.Prefill
			e.PrefillFree = 100 + float64(i%7)/10
		} else {
			e.DecodeRequests, e.DecodeTokens, e.DecodeRemaining = i%40, i%40*700, i%40*100
		}
		s = append(s, e)
	}
	return snapshot(s...)
}

// BenchmarkAdmit places or refuses one request: on a fleet with room, on an idle one where all
// pairs tie, and on one where nobody is within the promise.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		busy, idle, late := fleet(n), fleet(n), fleet(n)
		for i := range idle.Engines {
			e := &idle.Engines[i]
			e.PrefillFree, e.DecodeRequests, e.DecodeTokens, e.DecodeRemaining = 0, 0, 0, 0
			late.Engines[i].PrefillFree += 3
		}
		for _, c := range []struct {
			name string
			s    model.Snapshot
		}{{"busy", busy}, {"idle", idle}, {"late", late}} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				r, x := request(700, 200), Scratch{}
				b.ReportAllocs()
				for b.Loop() {
					if d := Admit(&c.s, &r, 100, &x); d.Placed == (c.name == "late") {
						b.Fatal(d.Refused)
					}
				}
			})
		}
	}
}

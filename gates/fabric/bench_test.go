package fabric

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// BenchmarkRounds pairs all hosts, plans their gate and judges what all pairs measured.
func BenchmarkRounds(b *testing.B) {
	for _, n := range []int{64, 500} {
		f := testFleet(n)
		hosts := f.EngineHosts()
		b.Run(fmt.Sprintf("pair/%d", n), func(b *testing.B) {
			for b.Loop() {
				if got := Rounds(hosts); len(got) != n-1 {
					b.Fatalf("%d rounds", len(got))
				}
			}
		})
		b.Run(fmt.Sprintf("plan/%d", n), func(b *testing.B) {
			for b.Loop() {
				if got := planned(b, f); len(got) != 1+n+n*(n-1)/2+n+n { // budget, testers, pairs, incast, stops
					b.Fatalf("%d steps", len(got))
				}
			}
		})
		b.Run(fmt.Sprintf("judge/%d", n), func(b *testing.B) {
			v := view(b, f, good(b, f))
			for b.Loop() {
				if got := (Gate{}).Judge(v); len(got) != 0 {
					b.Fatalf("found %s", got[0].Message)
				}
			}
		})
	}
}

// BenchmarkRoundOnLoopback measures one round of four hosts, two pairs at once, on the loopback
// with samples of 0.3 s: what a round takes beside its samples.
func BenchmarkRoundOnLoopback(b *testing.B) {
	round := Rounds(names(4))[0]
	addresses := make([]string, len(round))
	for i := range round {
		addresses[i] = serving(b, nil)
	}
	var mu sync.Mutex
	var rates []float64
	for b.Loop() {
		var wg sync.WaitGroup
		for i, p := range round {
			wg.Go(func() {
				q := PairRequest{A: p.A, B: p.B, Address: addresses[i], Streams: 4, For: fleet.Duration(300 * time.Millisecond)}
				got, err := MeasurePair(limited(b), q)
				if err != nil || got.Unreachable != "" {
					b.Errorf("%s ↔ %s: %v %s", p.A, p.B, err, got.Unreachable)
				}
				mu.Lock()
				defer mu.Unlock()
				rates = append(rates, got.Forward.Gbps, got.Back.Gbps)
			})
		}
		wg.Wait()
	}
	b.ReportMetric(median(rates), "Gbit/s-edge")
}

package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// wave is chats and documents that take turns, each for half of a period.
func wave(period, span float64) (out []Arrival) {
	r := rand.New(rand.NewPCG(7, uint64(period)))
	flow := func(from, to, rate float64, input, output int, class string) {
		gap := int(2e6 / rate)
		for at := from + float64(r.IntN(gap))/1e6; at < to; at += float64(r.IntN(gap)) / 1e6 {
			out = append(out, Arrival{At: at, Input: input/2 + r.IntN(input), Output: output/2 + r.IntN(output), Class: class})
		}
	}
	for from := 0.0; from < span; from += period {
		flow(from, min(span, from+period/2), 60, 350, 200, "chat")
		flow(from+period/2, min(span, from+period), 5, 10000, 60, "doc")
	}
	slices.SortStableFunc(out, func(a, b Arrival) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return out
}

// Demand that changes back and forth, however fast, neither makes roles oscillate nor costs more
// than some points, and no class pays for it.
func TestSquareWavesAreRiddenOut(t *testing.T) {
	for _, period := range []float64{5, 7, 10, 14, 20, 30, 42, 60, 85, 120, 170, 240, 340, 480, 680, 960, 1350, 1800} {
		c := workload(t, "chatdoc-100")
		span := max(1200, 2*period)
		c.Arrivals = wave(period, span)
		w := played(t, c, "default")
		a := w.score()
		hourly := float64(a.Moves) * 3600 / span
		doc := w.class("doc")
		t.Logf("%g s: %.2f %%, of doc %.1f %%, %.0f moves an hour", period, 100*a.Attainment, 100*float64(doc.qualified)/float64(doc.offered), hourly)
		if hourly > 60 || a.Attainment < 0.975 || float64(doc.qualified) < 0.75*float64(doc.offered) {
			t.Errorf("a period of %g s: %.2f %% qualify, of doc %d of %d, %.0f moves an hour", period, 100*a.Attainment, doc.qualified, doc.offered, hourly)
		}
	}
}

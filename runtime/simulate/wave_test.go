package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// wave is chats for half of a period and documents for the other half.
func wave(period, span float64) []Arrival {
	r := rand.New(rand.NewPCG(11, uint64(period)))
	var out []Arrival
	flow := func(from, to, rate float64, input, output int, class string) {
		for at := from + r.Float64()*2/rate; at < to; at += r.Float64() * 2 / rate {
			out = append(out, Arrival{at, input/2 + r.IntN(input), output/2 + r.IntN(output), class})
		}
	}
	for from := 0.0; from < span; from += period {
		flow(from, min(span, from+period/2), 60, 350, 200, "chat")
		flow(from+period/2, min(span, from+period), 5, 10000, 60, "doc")
	}
	slices.SortStableFunc(out, func(x, y Arrival) int {
		switch {
		case x.At < y.At:
			return -1
		case x.At > y.At:
			return 1
		}
		return 0
	})
	return out
}

// mostMoves is how often roles may move in an hour of a square wave: each half of a period may
// ask for as many engines as there are but the floors, and no wave for more than one engine in
// ten seconds.
func mostMoves(period float64, engines int) float64 {
	return min(2*3600/period*float64(engines-2), 360) + float64(engines)
}

// Square waves of every period move roles no more often than they ask for, and those that are
// too fast to follow move few.
func TestSquareWavesDoNotOscillate(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours")
	}
	for _, period := range []float64{5, 7, 10, 14, 20, 30, 42, 60, 85, 120, 170, 240, 340, 480, 680, 960, 1350, 1800} {
		t.Run(fmt.Sprint(period), func(t *testing.T) {
			t.Parallel()
			span := max(1200, 2*period)
			c := config(reference(), 4, 0.06, wave(period, span)...)
			c.thorough = false
			a := alone(t, c, "default")
			moves := float64(a.Moves) * 3600 / span
			most := mostMoves(period, c.Model.Engines)
			if period <= 10 {
				most = 40 // both halves lie within one horizon of the controller
			}
			t.Logf("%.0f moves an hour of at most %.0f, attainment %.4f", moves, most, a.Attainment)
			if moves > most {
				t.Errorf("%.0f moves an hour, want at most %.0f", moves, most)
			}
		})
	}
}

// alone plays one arm without the static splits beside it.
func alone(t *testing.T, c Config, name string) Arm {
	t.Helper()
	c.index()
	w := newWorld(&c, policy{name: name})
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.score()
}

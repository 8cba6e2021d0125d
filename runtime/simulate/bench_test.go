package simulate

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkRun plays a mixed load of chats and documents on eight engines, one arm.
func BenchmarkRun(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	at := 0.0
	var arrivals []Arrival
	for range 20000 {
		at += r.ExpFloat64() / 38
		if r.IntN(16) == 0 {
			arrivals = append(arrivals, Arrival{at, 6000 + r.IntN(8000), 30 + r.IntN(60), "doc"})
		} else {
			arrivals = append(arrivals, Arrival{at, 100 + r.IntN(900), 50 + r.IntN(300), "chat"})
		}
	}
	c := config(reference(), 4, 0.06, arrivals...)
	c.thorough = false
	c.index()
	served := 0
	for b.Loop() {
		w := newWorld(&c, policy{name: "default"})
		if err := w.run(b.Context()); err != nil {
			b.Fatal(err)
		}
		served = w.complete
	}
	b.ReportMetric(float64(len(arrivals)*b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(served), "served")
}

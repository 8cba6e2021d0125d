package profile

import (
	"iter"
	"math"
)

// Ratio is a multiplicative correction that is learned: observed over predicted work, in
// seconds, of recent work. The zero value has seen none.
type Ratio struct{ observed, predicted float64 }

// Seen reports whether there is any evidence.
func (r Ratio) Seen() bool { return r.predicted > 0 }

// Add takes work that was predicted to take some seconds and took others; 0 predicted is time
// in which nothing was done that should have been. Memory is how many seconds of predicted work
// weigh e times less than the newest. Before its first work a ratio begins as first, with a
// second of work to speak for that.
func (r Ratio) Add(observed, predicted, memory, first float64) Ratio {
	if !(observed >= 0 && predicted >= 0 && memory > 0) || math.IsInf(observed, 0) || math.IsInf(predicted, 0) {
		return r
	}
	if !r.Seen() {
		r = Ratio{first, 1}
	}
	keep := math.Exp(-predicted / memory)
	r.predicted = float64(r.predicted*keep) + predicted
	// One long standstill must not outweigh all that comes after.
	r.observed = min(float64(r.observed*keep)+observed, float64(r.predicted+1)*mostRatio)
	return r
}

const mostRatio = 4

// Typical is the mean of corrections for which there is evidence, 1 without any: what to
// expect of an engine that has not worked yet.
func Typical(corrections iter.Seq2[Ratio, float64]) float64 {
	sum, n := 0.0, 0.0
	for r, v := range corrections {
		if r.Seen() {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return 1
	}
	return sum / n
}

// Value is the correction within its bounds; 1 without evidence.
func (r Ratio) Value(low, high float64) float64 {
	if r.predicted <= 0 {
		return 1
	}
	return min(high, max(low, r.observed/r.predicted))
}

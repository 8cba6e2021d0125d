package profile

import (
	"math"
	"slices"
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

// joined is the part of those without a first token that are in the batch: one waits half a step
// on average until it may join, and a step then makes its token.
const joined = 2.0 / 3

// Decoding predicts the seconds that an engine took for so many tokens: beside requests that had
// a first token are others without, each with their tokens in the cache at the end.
func (c *Curve) Decoding(made, requests, tokens, without, withoutTokens int) float64 {
	n := float64(requests) + float64(joined*float64(without))
	if n == 0 {
		return 0
	}
	return float64(made) / n * c.interval(n, math.Max(0, float64(tokens)-float64(made)/2)+float64(joined*float64(withoutTokens)))
}

// Presume gives the engines that have not worked yet the median correction of those that have, the
// lower of two, 1 without any: one slow engine says nothing of the others. of is the evidence of one
// of n engines and its correction.
func Presume(n int, of func(i int) (Ratio, *float64)) {
	var few [64]float64
	seen := few[:0]
	for i := range n {
		if r, v := of(i); r.Seen() {
			seen = append(seen, *v)
		}
	}
	median := 1.0
	if len(seen) > 0 {
		slices.Sort(seen)
		median = seen[(len(seen)-1)/2]
	}
	for i := range n {
		if r, v := of(i); !r.Seen() {
			*v = median
		}
	}
}

// Value is the correction within its bounds; 1 without evidence.
func (r Ratio) Value(low, high float64) float64 {
	if r.predicted <= 0 {
		return 1
	}
	return min(high, max(low, r.observed/r.predicted))
}

// Tail follows how much longer than predicted the last prefills of an engine took. The zero
// value has seen none.
type Tail struct {
	ring   [64]float64 // observed over predicted
	sorted []float64
	n      int
}

// Add notes one.
func (t *Tail) Add(ratio float64) {
	at := t.n % len(t.ring)
	if t.n >= len(t.ring) {
		i, _ := slices.BinarySearch(t.sorted, t.ring[at])
		t.sorted = slices.Delete(t.sorted, i, i+1)
	}
	t.ring[at] = ratio
	i, _ := slices.BinarySearch(t.sorted, ratio)
	t.sorted = slices.Insert(t.sorted, i, ratio)
	t.n++
}

// Risk is their 80th percentile, from 1 to 2; 1 before there are eight.
func (t *Tail) Risk() float64 {
	if t.n < 8 {
		return 1
	}
	return min(2, max(1, Quantile(t.sorted, 0.8)))
}

package simulate

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// exact is how many values a histogram keeps as they are; from then on it counts them in
// bins, so that its memory does not grow with a workload.
const exact = 1 << 16

// Bins of a width of 0.1 % from a microsecond up.
const (
	binLow  = 1e-6
	binGrow = 1.001
	binMost = 28000 // reaches 10⁶ s
)

// histogram holds positive durations in seconds.
type histogram struct {
	values []float64
	bins   []int
	n      int
}

func (h *histogram) add(v float64) {
	h.n++
	if h.bins == nil {
		h.values = append(h.values, v)
		if len(h.values) <= exact {
			return
		}
		h.bins = make([]int, binMost)
		for _, x := range h.values {
			h.bins[bin(x)]++
		}
		h.values = nil
		return
	}
	h.bins[bin(v)]++
}

// join adds what another one holds.
func (h *histogram) join(o *histogram) {
	for _, v := range o.values {
		h.add(v)
	}
	if o.bins == nil {
		return
	}
	if h.bins == nil {
		h.bins = make([]int, binMost)
		for _, x := range h.values {
			h.bins[bin(x)]++
		}
		h.values = nil
	}
	for i, n := range o.bins {
		h.bins[i] += n
	}
	h.n += o.n
}

func bin(v float64) int {
	if v <= binLow {
		return 0
	}
	return min(binMost-1, int(math.Log(v/binLow)/math.Log(binGrow)))
}

// quantile is the nearest rank; in bins, the middle of its bin.
func (h *histogram) quantile(q float64) float64 {
	if h.bins == nil {
		slices.Sort(h.values)
		return profile.Quantile(h.values, q)
	}
	rank := max(1, int(math.Ceil(q*float64(h.n))))
	for i, n := range h.bins {
		if rank -= n; rank <= 0 {
			return binLow * math.Pow(binGrow, float64(i)+0.5)
		}
	}
	return 0
}

// percentiles are in milliseconds, rounded to a microsecond.
func (h *histogram) percentiles() Percentiles {
	at := func(q float64) *float64 {
		if h.n == 0 {
			return nil
		}
		x := math.Round(h.quantile(q)*1e6) / 1000
		return &x
	}
	return Percentiles{at(0.50), at(0.95), at(0.99)}
}

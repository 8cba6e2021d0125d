package bench

import (
	"cmp"
	"math"
	"slices"
)

// Interval is an estimate with its 95 % confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Distinct reports whether the interval leaves zero out.
func (i Interval) Distinct() bool { return i.Low > 0 || i.High < 0 }

// batches is how many stretches a series is cut into: within 10 to 30, more gains little
// and costs normality (Schmeiser, "Batch size effects in the analysis of simulation
// output", Operations Research 30, 1982).
const batches = 20

// least is the fewest values of which an interval is told.
const least = 2 * batches

// student holds the 97.5 % points of Student's t, by degrees of freedom from 1.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

func tPoint(df float64) float64 {
	d := int(df)
	if d < 1 {
		return student[0]
	}
	if d > len(student) {
		return 1.960 + 2.4/float64(d) // within 0.002 of the exact value from 31 on
	}
	return student[d-1]
}

// batchMeans cuts values, in the order of their arrival, into equal stretches and returns
// their means. What requests suffer together (a queue, a role move) lies mostly within one
// stretch, so the means are nearly independent where single requests are not.
func batchMeans(v []float64) []float64 {
	out := make([]float64, batches)
	for i := range out {
		out[i] = mean(v[i*len(v)/batches : (i+1)*len(v)/batches])
	}
	return out
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// variance of the mean of v.
func variance(v []float64) float64 {
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return sum / float64(len(v)-1) / float64(len(v))
}

// meanInterval is the mean of a series with the interval of its batch means; ok is false
// for a series that is too short.
func meanInterval(v []float64) (Interval, bool) {
	if len(v) < least {
		return Interval{}, false
	}
	m, half := mean(v), tPoint(batches-1)*math.Sqrt(variance(batchMeans(v)))
	return Interval{m, m - half, m + half}, true
}

// differenceInterval is mean(b) − mean(a) of two series that are not paired (Welch's t over
// batch means).
func differenceInterval(a, b []float64) (Interval, bool) {
	if len(a) < least || len(b) < least {
		return Interval{}, false
	}
	va, vb := variance(batchMeans(a)), variance(batchMeans(b))
	m, df := mean(b)-mean(a), float64(batches-1)
	if va+vb > 0 {
		df = (va + vb) * (va + vb) / ((va*va + vb*vb) / (batches - 1))
	}
	half := tPoint(df) * math.Sqrt(va+vb)
	return Interval{m, m - half, m + half}, true
}

// rounds of a bootstrap, fewer for series so long that they would take minutes.
func rounds(n int) int { return max(400, min(2000, 400_000_000/n)) }

// pairedQuantile is the difference of a quantile of two paired series, with the percentile
// interval of a circular block bootstrap (Politis and Romano, 1992): stretches of pairs are
// drawn, as long as a batch, so that what belongs together stays together.
func pairedQuantile(a, b []float64, q float64) (Interval, bool) {
	n := len(a)
	if n < least {
		return Interval{}, false
	}
	block, of := max(1, n/batches), rounds(n)
	r := stream(1, streamPairs)
	out := make([]float64, of)
	da, db := rank(a), rank(b)
	for k := range out {
		clear(da.drawn)
		clear(db.drawn)
		for i := 0; i < n; i += block {
			at := r.IntN(n)
			for range min(block, n-i) {
				da.drawn[da.place[at]]++
				db.drawn[db.place[at]]++
				if at++; at == n {
					at = 0
				}
			}
		}
		out[k] = db.quantile(q) - da.quantile(q)
	}
	slices.Sort(out)
	cut := of * 25 / 1000
	return Interval{quantile(slices.Clone(b), q) - quantile(slices.Clone(a), q), out[cut], out[of-1-cut]}, true
}

// ranked is a series sorted once, and how often each of its values was drawn: a round
// then costs no sorting.
type ranked struct {
	sorted []float64
	place  []int // of the series' values in sorted
	drawn  []int
}

func rank(v []float64) ranked {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(v[i], v[j]) })
	r := ranked{make([]float64, len(v)), make([]int, len(v)), make([]int, len(v))}
	for at, i := range order {
		r.sorted[at], r.place[i] = v[i], at
	}
	return r
}

// quantile of what was drawn, by nearest rank.
func (r ranked) quantile(q float64) float64 {
	n := len(r.sorted)
	left := n - min(n-1, max(0, int(math.Ceil(q*float64(n)))-1))
	for at := n - 1; at > 0; at-- {
		if left -= r.drawn[at]; left <= 0 {
			return r.sorted[at]
		}
	}
	return r.sorted[0]
}

// quantile is by nearest rank; it sorts v.
func quantile(v []float64, q float64) float64 {
	slices.Sort(v)
	return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
}

package preflight

import (
	"cmp"
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// cell is one point of a sweep with what was measured there, in the order of measuring.
type cell[K comparable] struct {
	at     K
	values []float64
}

// batch is a cohort that decodes together.
type batch struct{ requests, tokens int }

// cells gathers values by their point; points stand in the order of less.
func cells[S any, K comparable](samples []S, of func(S) (K, float64), less func(a, b K) int) []cell[K] {
	index := map[K]int{}
	var out []cell[K]
	for _, s := range samples {
		k, v := of(s)
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, cell[K]{at: k})
		}
		out[i].values = append(out[i].values, v)
	}
	slices.SortFunc(out, func(a, b cell[K]) int { return less(a.at, b.at) })
	return out
}

func prefillCells(s profile.Samples) []cell[int] {
	return cells(s.Prefill, func(p profile.PrefillSample) (int, float64) { return p.Tokens, p.Seconds }, cmp.Compare[int])
}

func decodeCells(s profile.Samples) []cell[batch] {
	return cells(s.Decode, func(d profile.DecodeSample) (batch, float64) { return batch{d.Requests, d.KVTokens}, d.Gap },
		func(a, b batch) int {
			return cmp.Or(cmp.Compare(a.requests, b.requests), cmp.Compare(a.tokens, b.tokens))
		})
}

// median of values, NaN for none; one value that met a busy moment does not move it far.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// medians is one sample a point: its median.
func medians(s profile.Samples) profile.Samples {
	var out profile.Samples
	for _, c := range prefillCells(s) {
		out.Prefill = append(out.Prefill, profile.PrefillSample{Tokens: c.at, Seconds: median(c.values)})
	}
	for _, c := range decodeCells(s) {
		out.Decode = append(out.Decode, profile.DecodeSample{Requests: c.at.requests, KVTokens: c.at.tokens, Gap: median(c.values)})
	}
	return out
}

// widths of samples of 2, 3 and 4 normal values in standard deviations.
var widths = [...]float64{2: 1.128, 3: 1.693, 4: 2.059}

// halfWidth is the half width of the 95 % confidence interval of the median, as a share of it.
// Few values are judged by their range; from five on the interval lies between two of them
// (the binomial ranks), so that it holds for stalls and long tails too. One value says
// nothing: +Inf.
func halfWidth(values []float64) float64 {
	n := len(values)
	v := slices.Sorted(slices.Values(values))
	m := median(v)
	if n < 2 || !(m > 0) {
		return math.Inf(1)
	}
	if n < len(widths) {
		return 1.96 * 1.2533 * (v[n-1] - v[0]) / widths[n] / math.Sqrt(float64(n)) / m
	}
	k := int(math.Floor((float64(n) - 1.96*math.Sqrt(float64(n))) / 2))
	k = min(max(k, 0), (n-1)/2)
	return (v[n-1-k] - v[k]) / 2 / m
}

// spread is the median over all points of that half width; it says how noisy a run was.
func spread(s profile.Samples) float64 {
	var all []float64
	add := func(values []float64) {
		if len(values) > 1 {
			all = append(all, halfWidth(values))
		}
	}
	for _, c := range prefillCells(s) {
		add(c.values)
	}
	for _, c := range decodeCells(s) {
		add(c.values)
	}
	if len(all) == 0 {
		return 0
	}
	return median(all)
}

// drift compares the pace of the second half of a sweep with that of the first: each value
// over the median of its point. Sure reports that chance explains the difference in less than
// one case of a hundred (Mann and Whitney's test).
func drift(samples []profile.DecodeSample) (factor float64, sure bool) {
	mid := map[batch]float64{}
	for _, c := range decodeCells(profile.Samples{Decode: samples}) {
		mid[c.at] = median(c.values)
	}
	var pace []float64
	for _, s := range samples {
		if m := mid[batch{s.Requests, s.KVTokens}]; m > 0 {
			pace = append(pace, s.Gap/m)
		}
	}
	half := len(pace) / 2
	if half < 6 {
		return 1, false
	}
	a, b := pace[:half], pace[half:]
	u := 0.0
	for _, x := range a {
		for _, y := range b {
			switch {
			case y > x:
				u++
			case y == x:
				u += 0.5
			}
		}
	}
	n, m := float64(len(a)), float64(len(b))
	z := (u - n*m/2) / math.Sqrt(n*m*(n+m+1)/12)
	return median(b) / median(a), math.Abs(z) > 2.576
}

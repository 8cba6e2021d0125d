package fabric

import (
	"math"
	"slices"
)

// scaledMAD makes a median absolute deviation comparable to a standard deviation.
const scaledMAD = 1.4826

// median is 0 for no values.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// centre returns the median and the scaled median absolute deviation.
func centre(v []float64) (mid, spread float64) {
	mid = median(v)
	off := make([]float64, len(v))
	for i, x := range v {
		off[i] = math.Abs(x - mid)
	}
	return mid, scaledMAD * median(off)
}

// able is what a link can carry: what else runs on a host only lowers a repeat, so the
// second highest counts of many repeats, and the highest of few. One lucky repeat does not.
func able(repeats []float64) float64 {
	if len(repeats) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(repeats))
	if len(s) >= 4 {
		return s[len(s)-2]
	}
	return s[len(s)-1]
}

// crowd returns the centre and the spread of the narrowest half of values, both as
// logarithms. Faults lie below it, and up to half of all values may be faults: a slow host
// among four makes half of their edges slow. So of two halves that lie apart the upper one
// counts, where it is about as narrow.
func crowd(values []float64) (mid, spread float64) {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(max(v, math.SmallestNonzeroFloat64))
	}
	slices.Sort(logs)
	half := (len(logs) + 1) / 2
	width := func(i int) float64 { return logs[i+half-1] - logs[i] }
	best := 0
	for i := 0; i+half <= len(logs); i++ {
		if width(i) < width(best) {
			best = i
		}
	}
	if upper := len(logs) - half; upper >= best+half && width(upper) <= 2*width(best)+closeEnough {
		best = upper
	}
	return median(logs[best : best+half]), width(best) / halfOfNormal
}

const (
	// halfOfNormal is the width of the narrowest half of a normal distribution, in standard
	// deviations.
	halfOfNormal = 1.349
	// closeEnough is a difference, as a logarithm, that is none.
	closeEnough = 0.02
	// separation is how many spreads of its peers a value must lie below their centre, beside
	// lying below it by the fleet's share. The two together keep a noisy fleet quiet: where
	// the peers differ much from each other, one that differs as much is none to name.
	separation = 4
)

// below tells which values are outliers downwards among their peers, and the centre of
// these. It wants at least minPeers values.
func below[K comparable](values map[K]float64, share float64) (map[K]bool, float64) {
	all := make([]float64, 0, len(values))
	for _, v := range values {
		all = append(all, v)
	}
	out := map[K]bool{}
	if share <= 0 || len(all) < minPeers {
		return out, median(all)
	}
	mid, spread := crowd(all)
	edge := min(mid+math.Log1p(-share), mid-separation*spread)
	for e, v := range values {
		if v <= 0 || math.Log(v) < edge {
			out[e] = true
		}
	}
	return out, math.Exp(mid)
}

// minPeers is the least number of edges that can be compared: three hosts.
const minPeers = 6

// message is the law of one message: seconds = start + bytes ÷ rate.
type message struct{ start, rate float64 }

// fit takes the start from the smallest size and the rate from the largest; false when the
// curve has less than two sizes or bends downwards.
func fit(curve []Point) (message, bool) {
	if len(curve) < 2 {
		return message{}, false
	}
	first, last := curve[0], curve[len(curve)-1]
	more, longer := float64(last.Bytes-first.Bytes), last.Seconds-first.Seconds
	if more <= 0 || longer <= 0 {
		return message{}, false
	}
	m := message{rate: more / longer}
	m.start = max(0, first.Seconds-float64(first.Bytes)/m.rate)
	return m, true
}

// law is fit, and where the time of a sample held one size alone, as on a way with a long
// delay, the start that this size leaves at the link's rate.
func law(curve []Point, gbps float64) (message, bool) {
	if m, ok := fit(curve); ok || len(curve) != 1 || !(gbps > 0) {
		return m, ok
	}
	rate := gbps * 1e9 / 8
	return message{rate: rate, start: max(0, curve[0].Seconds-float64(curve[0].Bytes)/rate)}, true
}

// effective is what an edge that carries gbps for long gives one message of a size: the
// time until the first byte counts. At the knee, start × rate, it is half.
func effective(m message, gbps float64, bytes int64) float64 {
	if gbps <= 0 || bytes <= 0 {
		return 0
	}
	return 8 * float64(bytes) / (m.start + 8*float64(bytes)/(gbps*1e9)) / 1e9
}

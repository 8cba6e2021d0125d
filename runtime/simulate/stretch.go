package simulate

import "math"

// stretch is a run of decode steps of one batch. Step i, from 0, takes first + i·more
// seconds, since the batch holds more tokens after each. Products are rounded by themselves,
// so that machines that fuse them give the same bytes.
type stretch struct {
	from        float64
	first, more float64
}

// end is when k steps have ended.
func (s stretch) end(k int) float64 {
	n := float64(k)
	return s.from + float64(n*s.first) + float64(float64(s.more*n)*(n-1))/2
}

// done is how many steps have ended by a moment.
func (s stretch) done(now float64) int {
	x := now - s.from
	if x < s.first {
		return 0
	}
	k := x / s.first
	if s.more > 0 {
		b := s.first - s.more/2
		k = 2 * x / (b + math.Sqrt(float64(b*b)+float64(2*s.more*x)))
	}
	n := int(k)
	for s.end(n+1) <= now {
		n++
	}
	for n > 0 && s.end(n) > now {
		n--
	}
	return n
}

// boundary is the first step, at least 1, that ends at a moment or after it.
func (s stretch) boundary(at float64) int {
	n := s.done(at)
	if n > 0 && s.end(n) == at {
		return n
	}
	return n + 1
}

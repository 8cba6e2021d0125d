package router

import "math"

// drainRate is how fast seats have come free lately.
type drainRate struct {
	at [64]float64 // router clock of the last ends, a ring
	n  int
}

func (d *drainRate) ended(now float64) {
	d.at[d.n%len(d.at)] = now
	d.n++
}

// Of a forecast: over how many seconds it looks back, and how many ends it needs.
const (
	drainSpan = 10
	drainEnds = 8
)

// wait is the seconds until so many seats are expected to be free; 0 = too few came free lately
// to tell.
func (d *drainRate) wait(seats int, now float64) float64 {
	n, oldest := 0, now
	for ; n < min(d.n, len(d.at)); n++ {
		at := d.at[(d.n-1-n)%len(d.at)]
		if at < now-drainSpan {
			break
		}
		oldest = at
	}
	if n < drainEnds {
		return 0
	}
	return (now - oldest) / float64(n) * float64(seats)
}

// maxRetryAfter bounds what a client is told to wait, seconds.
const maxRetryAfter = 60

// after is the whole seconds until so many seats are expected to be free; at least 1.
func (d *drainRate) after(seats int) int {
	k := min(d.n, len(d.at))
	if k < 2 {
		return 1
	}
	newest := d.at[(d.n-1)%len(d.at)]
	oldest := d.at[(d.n-k)%len(d.at)]
	if newest <= oldest {
		return 1
	}
	each := (newest - oldest) / float64(k-1)
	return int(min(maxRetryAfter, max(1, math.Ceil(each*float64(seats)))))
}

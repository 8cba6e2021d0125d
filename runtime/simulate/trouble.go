package simulate

import (
	"errors"
	"fmt"
)

// How clients tell how long their answers may get.
const (
	Exactly  = ""         // as long as they will be
	Capped   = "capped"   // a power of two, between one and eight times as long
	Uncapped = "uncapped" // not at all
)

// Trouble is what the router does not know or learns late, the same in every arm. The zero
// value is none.
type Trouble struct {
	Lengths string // Exactly, Capped or Uncapped
	// Report is the seconds between reports of an engine on its residents and its queue; what
	// the router itself has placed since is known beside them. 0 = engines are seen as they are.
	Report float64
	Late   float64 // seconds that a report takes to arrive
	Lost   float64 // share of reports that never do
	Skew   float64 // most seconds that the times of an engine's reports are off, either way
	// Attempts is how often a request is placed that was lost with an engine before its first
	// token; 0 = once.
	Attempts int
}

func (t Trouble) check() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("check simulation: "+format, args...))
		}
	}
	bad(t.Lengths != Exactly && t.Lengths != Capped && t.Lengths != Uncapped, "lengths are %q, want %q, %q or nothing", t.Lengths, Capped, Uncapped)
	for name, v := range map[string]float64{"report": t.Report, "late": t.Late, "skew": t.Skew} {
		bad(!(v >= 0 && v < maxSpan), "%s is %v, want seconds of at least 0", name, v)
	}
	bad(t.Report > 0 && t.Report < 1e-3, "report is %v, want at least a millisecond", t.Report)
	bad(t.Report == 0 && (t.Late > 0 || t.Lost > 0 || t.Skew > 0), "reports are late, lost or skewed, and there are none")
	bad(!(t.Lost >= 0 && t.Lost < 1), "lost is %v, want a share below 1", t.Lost)
	bad(t.Attempts < 0, "attempts is %d, want at least 0", t.Attempts)
	return errors.Join(errs...)
}

// draw is a number that depends on nothing but the seed and what it is drawn for.
func draw(seed uint64, a, b int) uint64 {
	x := seed ^ uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)*0xbf58476d1ce4e5b9
	for range 2 {
		x ^= x >> 30
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// wanted is the limit that a client sets for its answer; 0 = none.
func (t Trouble) wanted(seed uint64, arrival, output int) int {
	switch t.Lengths {
	case Capped:
		most := output * (1 + int(draw(seed, arrival, 1)%4))
		limit := 16
		for limit < most {
			limit *= 2
		}
		return limit
	case Uncapped:
		return 0
	}
	return output
}

// due is how many tokens the router expects a resident of the batch to make yet, at least one.
func (e *engine) due(j *job, steps int) int {
	left := j.leaves - steps
	if j.told == j.output {
		return left
	}
	return max(1, j.told-(j.output-left))
}

// remaining is due, of all of the batch.
func (e *engine) remaining(steps int) int {
	if !e.guesses {
		return e.leaves - steps*len(e.batch)
	}
	sum := 0
	for _, j := range e.batch {
		sum += e.due(j, steps)
	}
	return sum
}

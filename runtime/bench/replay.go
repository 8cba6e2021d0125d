package bench

import (
	"errors"
	"time"
)

// Replay is how a trace is offered.
type Replay struct {
	Requests int     // the first n; 0 = all
	Rate     float64 // mean requests/s, the trace's pattern kept; 0 = as recorded
	Speed    float64 // times as fast; 0 = 1; not beside Rate
	For      time.Duration
	// Input and Output set lengths, MaxInput and MaxOutput cut them; 0 = neither.
	Input, Output, MaxInput, MaxOutput int
}

// Replay returns the arrivals of a trace as told, the first one at 0 unless the trace's
// own clock begins later.
func (t Trace) Replay(r Replay) ([]Arrival, error) {
	n := len(t.Arrivals)
	if r.Requests > 0 {
		n = min(n, r.Requests)
	}
	factor := 1.0
	if r.Speed > 0 {
		factor = 1 / r.Speed
	}
	from := time.Duration(0)
	if r.Rate > 0 && n > 0 {
		from = t.Arrivals[0].At
		if span := t.Arrivals[n-1].At - from; span > 0 {
			factor = float64(n-1) / r.Rate / span.Seconds()
		}
	}
	out := make([]Arrival, 0, n)
	for _, a := range t.Arrivals[:n] {
		a.At = time.Duration(float64(a.At-from) * factor).Truncate(time.Microsecond)
		if r.For > 0 && a.At >= r.For {
			break
		}
		a.Input, a.Output = sized(a.Input, r.Input, r.MaxInput), sized(a.Output, r.Output, r.MaxOutput)
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, errors.New("replay trace: not one request is due in that time")
	}
	return out, nil
}

// sized is the set length, else the given one up to a maximum, and at least 1.
func sized(v, set, most int) int {
	if set > 0 {
		v = set
	} else if most > 0 {
		v = min(v, most)
	}
	return max(1, v)
}

package bench

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Process is how arrivals follow each other.
type Process struct {
	Name string  `json:"name"` // even, poisson or gamma
	CV   float64 `json:"cv"`   // standard deviation of the gaps over their mean
}

// ParseProcess checks a process; cv counts for gamma alone.
func ParseProcess(name string, cv float64) (Process, error) {
	switch name {
	case "even":
		return Process{name, 0}, nil
	case "poisson":
		return Process{name, 1}, nil
	case "gamma":
		if !(cv >= 0.05 && cv <= 20) {
			return Process{}, fmt.Errorf("a coefficient of variation of %g: want 0.05 to 20", cv)
		}
		return Process{name, cv}, nil
	}
	return Process{}, fmt.Errorf("no arrival process %q; there are even, poisson, gamma", name)
}

// gap draws the distance to the next arrival at rate 1; its mean is 1.
func (p Process) gap(r *rand.Rand) float64 {
	switch p.Name {
	case "poisson":
		return r.ExpFloat64()
	case "gamma":
		shape := 1 / (p.CV * p.CV)
		return gamma(r, shape) / shape
	}
	return 1
}

// gamma draws from the gamma distribution of scale 1 (Marsaglia and Tsang, "A simple
// method for generating gamma variables", 2000; shapes below 1 by their boost).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		u := 1 - r.Float64() // never 0
		return gamma(r, shape+1) * math.Pow(u, 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if u := 1 - r.Float64(); math.Log(u) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return d * v
		}
	}
}

// Phase is a stretch of time in which the rate goes from one value to another, evenly.
type Phase struct {
	From, To float64 // requests/s
	For      time.Duration
	Mix      Mix
}

// maxPhase bounds one phase.
const maxPhase = 7 * 24 * time.Hour

// ParsePhase reads RATE@DURATION or RATE..RATE@DURATION, with :MIX behind it where the mix
// is not that of the run.
func ParsePhase(s string, mix Mix) (Phase, error) {
	p := Phase{Mix: mix}
	head, named, ok := strings.Cut(s, ":")
	if ok {
		m, err := ParseMix(named)
		if err != nil {
			return p, err
		}
		p.Mix = m
	}
	rates, length, ok := strings.Cut(head, "@")
	if !ok {
		return p, fmt.Errorf("read phase %q: want RATE@DURATION, RATE..RATE@DURATION or either with :MIX", s)
	}
	var err error
	if p.For, err = time.ParseDuration(length); err != nil || p.For <= 0 || p.For > maxPhase {
		return p, fmt.Errorf("read phase %q: duration %q: want one like 90s, at most %s", s, length, maxPhase)
	}
	from, to, ramp := strings.Cut(rates, "..")
	if !ramp {
		to = from
	}
	for _, x := range []struct {
		text string
		to   *float64
	}{{from, &p.From}, {to, &p.To}} {
		v, err := strconv.ParseFloat(x.text, 64)
		if err != nil || !(v >= 0 && v <= maxRate) {
			return p, fmt.Errorf("read phase %q: rate %q: want 0 to %g requests/s", s, x.text, float64(maxRate))
		}
		*x.to = v
	}
	return p, nil
}

// maxRate bounds a rate, in requests/s.
const maxRate = 1e5

// Load is what a point offers, by rule and seed.
type Load struct {
	Process Process
	Phases  []Phase
	// Requests ends the load after that many; 0 = with the last phase. With one phase whose
	// For is 0 there is no other end.
	Requests int
	Seed     uint64
}

// Generate returns the arrivals of a load. Equal loads give equal arrivals.
//
// Gaps are drawn at rate 1 and laid along the integral of the rate: time rescaling, which
// makes a ramp of a Poisson process a Poisson process again.
func (l Load) Generate() ([]Arrival, error) {
	if len(l.Phases) == 0 || len(l.Phases) > 1 && slices.ContainsFunc(l.Phases, func(p Phase) bool { return p.For <= 0 }) {
		return nil, errors.New("generate load: want phases, each with a duration")
	}
	times, lengths := stream(l.Seed, streamArrivals), stream(l.Seed, streamLengths)
	var out []Arrival
	at, done := 0.0, 0.0 // work to the next arrival, and that of the phases before
	if l.Process.Name != "even" {
		at = l.Process.gap(times)
	}
	begin := time.Duration(0)
	for _, p := range l.Phases {
		if len(p.Mix) == 0 {
			return nil, errors.New("generate load: a phase without a mix")
		}
		work := p.work()
		if math.IsInf(work, 1) && l.Requests <= 0 {
			return nil, errors.New("generate load: want a number of requests or a duration")
		}
		for at-done < work && (l.Requests <= 0 || len(out) < l.Requests) {
			if len(out) >= maxArrivals {
				return nil, fmt.Errorf("generate load: more than %d requests", maxArrivals)
			}
			a := p.Mix.draw(lengths, l.Seed)
			a.At = begin + p.when(at-done).Truncate(time.Microsecond)
			out = append(out, a)
			at += l.Process.gap(times)
		}
		done += work
		begin += p.For
	}
	if len(out) == 0 {
		return nil, errors.New("generate load: not one request is due in that time")
	}
	return out, nil
}

// work is the mean number of arrivals in a phase.
func (p Phase) work() float64 {
	if p.For <= 0 {
		if p.From <= 0 {
			return 0
		}
		return math.Inf(1)
	}
	return (p.From + p.To) / 2 * p.For.Seconds()
}

// when is the time within a phase by which w arrivals are due on average.
func (p Phase) when(w float64) time.Duration {
	if w <= 0 {
		return 0
	}
	t := w / p.From
	if slope := (p.To - p.From) / p.For.Seconds(); p.For > 0 && slope != 0 {
		// The root of slope/2·t² + From·t = w that keeps its digits.
		t = 2 * w / (p.From + math.Sqrt(math.Max(0, p.From*p.From+2*slope*w)))
	}
	d := time.Duration(t * float64(time.Second))
	if p.For > 0 {
		d = min(d, p.For)
	}
	return d
}

// Draw returns n requests of a mix that are due at no time, for closed loops.
func Draw(m Mix, n int, seed uint64) []Arrival {
	lengths := stream(seed, streamLengths)
	out := make([]Arrival, n)
	for i := range out {
		out[i] = m.draw(lengths, seed)
	}
	return out
}

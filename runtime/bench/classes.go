package bench

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Lengths is a log-normal distribution of tokens, cut to its bounds. Both ends are
// inclusive; Sigma 0 always gives Median.
type Lengths struct {
	Median float64 `json:"median"`
	Sigma  float64 `json:"sigma"` // of the logarithm
	Min    int     `json:"min"`
	Max    int     `json:"max"`
}

// Draw returns one length.
func (l Lengths) Draw(r *rand.Rand) int {
	v := l.Median * math.Exp(l.Sigma*r.NormFloat64())
	return max(l.Min, min(l.Max, int(math.Round(math.Min(v, maxLength)))))
}

// Class is a kind of request. With families, a request repeats the first Prefix tokens of
// all others of its family, and only the rest of its input is its own.
type Class struct {
	Name     string  `json:"name"`
	Says     string  `json:"-"`
	Input    Lengths `json:"input"` // the request's own part where Families is set
	Output   Lengths `json:"output"`
	Families int     `json:"families,omitempty"`
	Prefix   Lengths `json:"prefix,omitzero"`
}

// Classes are the kinds of requests that a mix may name, shortest first. Lengths are
// round figures of the kinds of traffic that the public traces hold.
func Classes() []Class {
	return []Class{
		{Name: "short-chat", Says: "a question and a line of answer", Input: Lengths{64, 0.5, 16, 256}, Output: Lengths{48, 0.5, 8, 128}},
		{Name: "chat", Says: "a conversation's turn", Input: Lengths{512, 0.7, 64, 2048}, Output: Lengths{192, 0.6, 16, 768}},
		{Name: "history", Says: "a turn on top of a shared prefix, one of 16", Input: Lengths{128, 0.5, 16, 512}, Output: Lengths{160, 0.6, 16, 512},
			Families: 16, Prefix: Lengths{2048, 0.5, 512, 6144}},
		{Name: "document", Says: "a long text and a short answer", Input: Lengths{6144, 0.5, 2048, 16384}, Output: Lengths{96, 0.6, 8, 256}},
		{Name: "long-generation", Says: "a short question and a long answer", Input: Lengths{256, 0.5, 32, 1024}, Output: Lengths{1024, 0.4, 256, 3072}},
	}
}

// Fixed is a class in which all requests are alike.
func Fixed(input, output int) Class {
	return Class{Name: "fixed", Input: Lengths{Median: float64(input), Min: input, Max: input}, Output: Lengths{Median: float64(output), Min: output, Max: output}}
}

// Share is a class and its weight in a mix.
type Share struct {
	Class  Class   `json:"class"`
	Weight float64 `json:"weight"`
}

// Mix says which classes requests are of. Weights need not sum to one.
type Mix []Share

// ParseMix reads NAME=WEIGHT,…; a name alone weighs 1.
func ParseMix(s string) (Mix, error) {
	var out Mix
	for part := range strings.SplitSeq(s, ",") {
		name, weight, weighed := strings.Cut(strings.TrimSpace(part), "=")
		share := Share{Weight: 1}
		at := slices.IndexFunc(Classes(), func(c Class) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("read mix: no class %q; there are %s", name, classNames())
		}
		share.Class = Classes()[at]
		if weighed {
			w, err := strconv.ParseFloat(weight, 64)
			if err != nil || !(w > 0) || math.IsInf(w, 0) {
				return nil, fmt.Errorf("read mix: weight %q of %s: want a number above zero", weight, name)
			}
			share.Weight = w
		}
		if slices.ContainsFunc(out, func(o Share) bool { return o.Class.Name == name }) {
			return nil, fmt.Errorf("read mix: class %s stands twice", name)
		}
		out = append(out, share)
	}
	if len(out) == 0 {
		return nil, errors.New("read mix: no class")
	}
	return out, nil
}

func classNames() string {
	var names []string
	for _, c := range Classes() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// draw fills an arrival's lengths. Prefix lengths of a family depend on seed alone, so
// that all points of a run share them.
func (m Mix) draw(r *rand.Rand, seed uint64) Arrival {
	total := 0.0
	for _, s := range m {
		total += s.Weight
	}
	pick := r.Float64() * total
	c := m[len(m)-1].Class
	for _, s := range m {
		if pick -= s.Weight; pick < 0 {
			c = s.Class
			break
		}
	}
	a := Arrival{Class: c.Name, Input: c.Input.Draw(r), Output: c.Output.Draw(r)}
	if c.Families > 0 {
		a.Family = 1 + r.IntN(c.Families)
		a.Prefix = c.Prefix.Draw(stream(seed, streamPrefix+uint64(a.Family)))
		a.Input += a.Prefix
	}
	return a
}

// Streams keep draws apart, so that one more draw here moves nothing there.
const (
	streamArrivals = 1 << 32
	streamLengths  = 2 << 32
	streamPrefix   = 3 << 32
	streamPairs    = 4 << 32
)

func stream(seed, id uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, id)) }

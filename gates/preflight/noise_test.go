package preflight

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// noises are ways in which a machine disturbs a measurement of 1.
var noises = map[string]func(*rand.Rand) float64{
	"quiet":  func(r *rand.Rand) float64 { return 1 + 0.01*r.NormFloat64() },
	"noisy":  func(r *rand.Rand) float64 { return math.Exp(0.25 * r.NormFloat64()) },
	"busy":   func(r *rand.Rand) float64 { return 1 + 0.5*r.ExpFloat64() },
	"stalls": func(r *rand.Rand) float64 { return 1 + 0.02*r.ExpFloat64() + 8*float64(r.IntN(8)/7) },
}

// swept measures shape as the sweep does: rounds until a point's median is known well.
func swept(r *rand.Rand, shape func(requests, tokens int) float64, noise func(*rand.Rand) float64) profile.Samples {
	s := profile.Samples{Prefill: samples(0).Prefill}
	for _, requests := range []int{1, 2, 4, 8} {
		for _, each := range []int{128, 1024} {
			var values []float64
			for len(values) < leastRounds || halfWidth(values) > precision && len(values) < mostRounds {
				values = append(values, shape(requests, requests*each)*noise(r))
				s.Decode = append(s.Decode, profile.DecodeSample{Requests: requests, KVTokens: requests * each, Gap: values[len(values)-1]})
			}
		}
	}
	return s
}

func plane(r, k int) float64 { return 0.002 + 0.0001*float64(r) + 1e-7*float64(k) }

// judged runs the judge over many sweeps and counts codes of faults and notes.
func judged(seeds int, shape func(r, k int) float64, noise func(*rand.Rand) float64) (faults, notes map[string]int) {
	faults, notes = map[string]int{}, map[string]int{}
	f := testFleet()
	f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 0.05, MaxDecodeCVMAPE: 0.13}
	for seed := range seeds {
		s := swept(rand.New(rand.NewPCG(uint64(seed), 1)), shape, noise)
		for _, x := range judgeProfile(f, "d0", Profiled{IID: "d0", Samples: s}) {
			if x.Note {
				notes[x.Code]++
			} else {
				faults[x.Code]++
			}
		}
	}
	return faults, notes
}

// TestHealthyEngines are never failed for the noise of the machine.
func TestHealthyEngines(t *testing.T) {
	for name, noise := range noises {
		faults, notes := judged(100, plane, noise)
		t.Logf("%s: faults %v, notes %v", name, faults, notes)
		for code, n := range faults {
			if n > 3 {
				t.Errorf("%s: %s on %d of 100 healthy engines", name, code, n)
			}
		}
	}
}

// TestWrongCurves are never passed, however noisy the machine.
func TestWrongCurves(t *testing.T) {
	shapes := map[string]func(r, k int) float64{
		"a batch size without its graph": func(r, k int) float64 {
			if r == 4 {
				return 2 * plane(r, k)
			}
			return plane(r, k)
		},
		"a knee":                           func(r, k int) float64 { return plane(r, k) * (1 + 0.15*float64(max(0, r-2)*max(0, r-2))) },
		"a pace that falls with the batch": func(r, k int) float64 { return 0.01 / float64(r) },
	}
	for name, shape := range shapes {
		for how, noise := range noises {
			faults, notes := judged(15, shape, noise)
			found := faults["decode-fit"] + faults["decode-cross-validation"] + faults["profile-noisy"]
			t.Logf("%s, %s: faults %v, notes %v", name, how, faults, notes)
			if found < 15 {
				t.Errorf("%s, %s: %d findings in 15 engines", name, how, found)
			}
		}
	}
}

// TestNoiseIsSaid shows the three answers to one error above the limit.
func TestNoiseIsSaid(t *testing.T) {
	f := testFleet()
	f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 0.01, MaxDecodeCVMAPE: 0.01}
	r := rand.New(rand.NewPCG(3, 1))
	find := func(s profile.Samples) (out []record.Finding) {
		return judgeProfile(f, "d0", Profiled{IID: "d0", Samples: s})
	}
	noisy := swept(r, plane, noises["noisy"])
	for _, x := range find(noisy) {
		if !x.Note {
			t.Errorf("noise alone fails the engine: %+v", x)
		}
	}
	if n := len(find(noisy)); n == 0 {
		t.Error("the noise is not said")
	}
}

func TestHalfWidth(t *testing.T) {
	for _, c := range []struct {
		values []float64
		lo, hi float64
	}{
		{nil, math.Inf(1), math.Inf(1)},
		{[]float64{1}, math.Inf(1), math.Inf(1)},
		{[]float64{0, 0}, math.Inf(1), math.Inf(1)},
		{[]float64{1, 1, 1}, 0, 0},
		{[]float64{1, 1.01, 1.02}, 0.01, 0.03},
		{[]float64{1, 2, 3}, 0.7, 1},
		{[]float64{1, 1, 1.01, 1, 0.99, 1, 99}, 10, 99}, // seven do not tell a stall from the rule
		{[]float64{1, 1, 1.01, 1, 0.99, 1, 99, 1, 1, 1, 1, 1, 1}, 0, 0.03},
	} {
		if got := halfWidth(c.values); got < c.lo || got > c.hi {
			t.Errorf("%v: %g, want %g to %g", c.values, got, c.lo, c.hi)
		}
	}
}

func TestDrift(t *testing.T) {
	make := func(second float64) (out []profile.DecodeSample) {
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 40 {
			gap := plane(1+i%4, 100) * (1 + 0.02*r.NormFloat64())
			if i >= 20 {
				gap *= second
			}
			out = append(out, profile.DecodeSample{Requests: 1 + i%4, KVTokens: 100, Gap: gap})
		}
		return out
	}
	if by, sure := drift(make(1.5)); !sure || by < 1.3 || by > 1.7 {
		t.Errorf("throttled: %g, %v", by, sure)
	}
	if by, sure := drift(make(1)); sure {
		t.Errorf("steady: %g, %v", by, sure)
	}
	if _, sure := drift(make(9)[:8]); sure {
		t.Error("sure of eight values")
	}
}

// TestUncertaintyIsTheFleets lets a fleet accept a curve that noise leaves less known, which is
// said, and has nothing to say of a sweep that settled.
func TestUncertaintyIsTheFleets(t *testing.T) {
	f := testFleet()
	f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 0.01, MaxDecodeCVMAPE: 0.01}
	r := rand.New(rand.NewPCG(8, 1))
	wild := func(r *rand.Rand) float64 { return math.Exp(2 * r.NormFloat64()) }
	m := Profiled{IID: "d0", Samples: swept(r, plane, wild), Ended: endedBudget}
	if got := codes(judgeProfile(f, "d0", m)); got != "profile-noisy profile-noisy" {
		t.Fatalf("by default: %s", got)
	}
	f.Deploy.Profile.Uncertainty = 1
	for _, x := range judgeProfile(f, "d0", m) {
		if !x.Note || !strings.Contains(x.Got, "known to ±") {
			t.Errorf("where all is allowed: %+v", x)
		}
	}
	f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 9, MaxDecodeCVMAPE: 99}
	found := judgeProfile(f, "d0", m)
	if codes(found) != "profile-uncertain" || !found[0].Note || !strings.Contains(found[0].Got, "known to ±") {
		t.Errorf("within the limits, by noise: %+v", found)
	}
	m.Ended = endedSettled
	if found := judgeProfile(f, "d0", m); len(found) > 0 {
		t.Errorf("settled: %+v", found)
	}
}

func codes(found []record.Finding) string {
	var out []string
	for _, x := range found {
		out = append(out, x.Code)
	}
	return strings.Join(out, " ")
}

package profile

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestRatioFindsTheFactor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Float64Range(0.6, 1.9).Draw(t, "factor")
		memory := rapid.Float64Range(1, 30).Draw(t, "memory")
		var r Ratio
		if r.Value(0.5, 2) != 1 {
			t.Fatal("it begins with a correction")
		}
		seen := 0.0
		for seen < 20*memory {
			x := rapid.Float64Range(0.001, memory).Draw(t, "work")
			r = r.Add(factor*x, x, memory, 1)
			seen += x
			if v := r.Value(0.5, 2); v < min(1, factor)-1e-9 || v > max(1, factor)+1e-9 {
				t.Fatalf("%v is neither between 1 nor the factor %v", v, factor)
			}
		}
		if v := r.Value(0.5, 2); math.Abs(v-factor) > 0.01*factor {
			t.Fatalf("%v after much work, want %v", v, factor)
		}
	})
}

func TestRatioIsBounded(t *testing.T) {
	var r Ratio
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		if r.Add(bad, 1, 5, 1) != r || r.Add(1, bad, 5, 1) != r {
			t.Errorf("%v was taken", bad)
		}
	}
	for range 1000 {
		r = r.Add(60, 0, 5, 1) // it stands still
	}
	if v := r.Value(0.5, 2); v != 2 {
		t.Errorf("%v, want the bound", v)
	}
	for range 40 {
		r = r.Add(1, 1, 5, 1)
	}
	if v := r.Value(0.5, 2); v > 1.01 {
		t.Errorf("a standstill is remembered: %v", v)
	}
}

// Ten steps of four that decode and of two thirds of three that wait for their first token.
func TestDecodingByHand(t *testing.T) {
	c := Curve{Slope: 1e-6, RequestSlope: 1e-4, Intercept: 0.01}
	tokens := 4000.0 - 60/2 + 3000*2/3.0
	want := 60 / 6.0 * (0.01 + 6e-4 + 1e-6*tokens)
	if got := c.Decoding(60, 4, 4000, 3, 3000); math.Abs(got-want) > 1e-12 {
		t.Errorf("%g s, want %g", got, want)
	}
	if got := c.Decoding(0, 0, 0, 0, 0); got != 0 {
		t.Errorf("nobody took %g s", got)
	}
}

// One slow engine says nothing of those that have not worked yet; most of them do.
func TestOutliersAreNotPresumed(t *testing.T) {
	for _, c := range []struct {
		seen []float64
		want float64
	}{{nil, 1}, {[]float64{2}, 2}, {[]float64{2, 1}, 1}, {[]float64{1.3, 4, 1.3}, 1.3}, {[]float64{1, 1.3, 1.3, 1.3}, 1.3}} {
		values := append(append([]float64{}, c.seen...), 0)
		Presume(len(values), func(i int) (Ratio, *float64) {
			if i == len(c.seen) {
				return Ratio{}, &values[i]
			}
			return Ratio{}.Add(1, 1, 10, 1), &values[i]
		})
		if got := values[len(c.seen)]; got != c.want {
			t.Errorf("after %v %g is presumed, want %g", c.seen, got, c.want)
		}
	}
}

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

package model

import (
	"math"
	"testing"
)

func TestSlackIsTheLeast(t *testing.T) {
	p := &Params{TTFT: 2, TPOT: 0.05}
	s := NewSlack(100, 0.02, p)
	if !math.IsInf(s.Seconds(), 1) {
		t.Fatalf("nobody there: %v", s.Seconds())
	}
	near := func(want float64) {
		t.Helper()
		if math.Abs(s.Seconds()-want) > 1e-9 {
			t.Fatalf("%v, want %v", s.Seconds(), want)
		}
	}
	// 101 tokens from 97 on have until 102; 40 are left, at the promised pace 2 s.
	s.Decoding(97, 101, 40)
	near(0)
	s = NewSlack(100, 0.02, p)
	s.Decoding(99, 101, 40) // until 104
	near(2)
	s.Waiting(99, 100.5) // until 101; what stands still before its KV is here is no loss to it
	near(0.98)
	s.Waiting(98.5, 99)
	near(0.48)
	s.Waiting(98, 100.3) // too late anyway: not later still
	near(0.3)
	s.Waiting(98, 99)
	near(-0.02)
}

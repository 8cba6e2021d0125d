package profile

import (
	"errors"
	"fmt"
	"math"
)

// PrefillSample is one measured prefill: an engine otherwise idle, a prompt that it has
// never seen, one output token.
type PrefillSample struct {
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
}

// DecodeSample is one measured cell: a whole cohort resident, the mean gap between tokens.
type DecodeSample struct {
	Requests int     `json:"requests"`
	KVTokens int     `json:"kv_tokens"` // median resident tokens of the cohort
	Gap      float64 `json:"gap_s"`     // mean seconds between tokens
}

// Samples are what a measuring gate hands to Fit.
type Samples struct {
	Prefill []PrefillSample `json:"prefill"`
	Decode  []DecodeSample  `json:"decode"`
}

// Residuals say how far the samples lie from their curve. MAPE is the mean of
// |measured − predicted| / measured; the quantiles are of measured / predicted.
type Residuals struct {
	MAPE float64 `json:"mape"`
	Max  float64 `json:"max"` // largest relative error
	P50  float64 `json:"p50"`
	P80  float64 `json:"p80"`
	P95  float64 `json:"p95"`
}

// Report is what a fit found besides the curve.
type Report struct {
	Prefill  Residuals `json:"prefill"`
	Decode   Residuals `json:"decode"`
	DecodeCV float64   `json:"decode_cv_mape"` // leave one cell out
}

// Limits of a fit; past them the samples do not follow the curve's shape.
const (
	MaxPrefillMAPE  = 0.20
	MaxPrefillError = 0.50
	minPrefill      = 3 // distinct lengths
	minDecodeCells  = 4 // leave-one-out needs one more than the plane's three
)

// ErrSamples means that the samples cannot determine a curve.
var ErrSamples = errors.New("not enough distinct samples")

// ErrShape means that the samples do not follow the curve's shape.
var ErrShape = errors.New("samples do not follow the curve")

// Fit finds the non-negative curve with the least relative squared error. It needs at
// least 3 prompt lengths and 4 decode cells that vary in both requests and tokens.
func Fit(s Samples) (Curve, Report, error) {
	c, rep, err := Rough(s)
	if err == nil && !rep.PrefillFits() {
		err = fmt.Errorf("fit prefill: mean error %.3f, largest %.3f: %w", rep.Prefill.MAPE, rep.Prefill.Max, ErrShape)
	}
	if err != nil {
		return Curve{}, rep, err
	}
	return c, rep, nil
}

// PrefillFits reports whether the prefills follow their curve.
func (r Report) PrefillFits() bool {
	return r.Prefill.MAPE <= MaxPrefillMAPE && r.Prefill.Max <= MaxPrefillError
}

// Rough is Fit for a caller that knows how noisy the samples are: it does not bound the errors of
// the prefills.
func Rough(s Samples) (Curve, Report, error) {
	var c Curve
	var rep Report
	if err := fitPrefill(&c, &rep, s.Prefill); err != nil {
		return Curve{}, rep, fmt.Errorf("fit prefill: %w", err)
	}
	if err := fitDecode(&c, &rep, s.Decode); err != nil {
		return Curve{}, rep, fmt.Errorf("fit decode: %w", err)
	}
	return c, rep, nil
}

func fitPrefill(c *Curve, rep *Report, samples []PrefillSample) error {
	lengths := map[int]bool{}
	var rows [][]float64
	var y []float64
	for _, s := range samples {
		if s.Tokens < 1 || !positive(s.Seconds) {
			return fmt.Errorf("prefill of %d tokens in %g s: want both positive", s.Tokens, s.Seconds)
		}
		lengths[s.Tokens] = true
		n := float64(s.Tokens)
		rows, y = append(rows, []float64{n * n, n, 1}), append(y, s.Seconds)
	}
	if len(lengths) < minPrefill {
		return fmt.Errorf("%d prompt lengths, want %d: %w", len(lengths), minPrefill, ErrSamples)
	}
	x := nonNegative(rows, y)
	c.A, c.B, c.C = x[0], x[1], x[2]
	rep.Prefill = residuals(rows, y, x)
	c.PrefillMin, c.PrefillMax = bounds(samples, func(s PrefillSample) int { return s.Tokens })
	return nil
}

func fitDecode(c *Curve, rep *Report, samples []DecodeSample) error {
	var rows [][]float64
	var y []float64
	for _, s := range samples {
		if s.Requests < 1 || s.KVTokens < 1 || !positive(s.Gap) {
			return fmt.Errorf("gap of %g s at %d requests, %d tokens: want all positive", s.Gap, s.Requests, s.KVTokens)
		}
		rows = append(rows, []float64{float64(s.KVTokens), float64(s.Requests), 1})
		y = append(y, s.Gap)
	}
	c.MinRequests, c.MaxRequests = bounds(samples, func(s DecodeSample) int { return s.Requests })
	c.MinKVTokens, c.MaxKVTokens = bounds(samples, func(s DecodeSample) int { return s.KVTokens })
	if len(samples) < minDecodeCells || c.MinRequests == c.MaxRequests || c.MinKVTokens == c.MaxKVTokens {
		return fmt.Errorf("%d cells, %d-%d requests, %d-%d tokens; want %d cells that vary in both: %w",
			len(samples), c.MinRequests, c.MaxRequests, c.MinKVTokens, c.MaxKVTokens, minDecodeCells, ErrSamples)
	}
	x := nonNegative(rows, y)
	c.Slope, c.RequestSlope, c.Intercept = x[0], x[1], x[2]
	rep.Decode = residuals(rows, y, x)
	rep.DecodeCV = leaveOneOut(rows, y)
	return nil
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) && !math.IsNaN(v) }

func bounds[S any](samples []S, of func(S) int) (lo, hi int) {
	for i, s := range samples {
		if v := of(s); i == 0 {
			lo, hi = v, v
		} else {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	return lo, hi
}

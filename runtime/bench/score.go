package bench

import (
	"math"
	"slices"
)

// SLO is the promise, in seconds.
type SLO struct {
	TTFT float64 `json:"ttft_s"`
	TPOT float64 `json:"tpot_s"`
}

// Percentiles are milliseconds, nearest rank; null without a sample.
type Percentiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// Score sums up rows against a promise. Offered = completed + refused + failed.
type Score struct {
	Offered    int         `json:"offered"`
	Completed  int         `json:"completed"`
	Qualified  int         `json:"qualified"`
	Attainment float64     `json:"attainment"` // qualified over offered
	Refused    int         `json:"refused"`    // 429, or 503 with retry-after
	Failed     int         `json:"failed"`     // everything else, offers that were not sent included
	TTFT       Percentiles `json:"ttft_ms"`    // of completed requests
	TPOT       Percentiles `json:"tpot_ms"`
	MaxLag     float64     `json:"max_lag_ms"`
	Tokens     int         `json:"output_tokens"`
}

// Report is a score and its parts.
type Report struct {
	Score
	ByClass []ClassScore `json:"by_class"`
}

// ClassScore is the score of one class of requests.
type ClassScore struct {
	Class string `json:"class"`
	Score
}

// Qualified reports whether an offer kept the promise: finished naturally, at least two
// output tokens, first token and interval both within their limits.
func Qualified(r Row, slo SLO) bool {
	return r.Completed && r.OutputTokens >= 2 && r.TTFT != nil && *r.TTFT <= slo.TTFT && r.TPOT != nil && *r.TPOT <= slo.TPOT
}

// Refused reports whether an offer was turned away in good order.
func Refused(r Row) bool { return r.Status == 429 || r.Status == 503 && r.RetryAfter != "" }

// Evaluate scores all rows, and each class by itself in order of name.
func Evaluate(rows []Row, slo SLO) Report {
	classes := map[string][]Row{}
	for _, r := range rows {
		classes[r.Class] = append(classes[r.Class], r)
	}
	rep := Report{Score: score(rows, slo), ByClass: []ClassScore{}}
	names := make([]string, 0, len(classes))
	for c := range classes {
		names = append(names, c)
	}
	slices.Sort(names)
	for _, c := range names {
		rep.ByClass = append(rep.ByClass, ClassScore{c, score(classes[c], slo)})
	}
	return rep
}

func score(rows []Row, slo SLO) Score {
	s := Score{Offered: len(rows)}
	var ttft, tpot []float64
	for _, r := range rows {
		s.MaxLag = math.Max(s.MaxLag, r.Lag*1000)
		s.Tokens += r.OutputTokens
		switch {
		case r.Completed:
			s.Completed++
			if r.TTFT != nil {
				ttft = append(ttft, *r.TTFT*1000)
			}
			if r.TPOT != nil {
				tpot = append(tpot, *r.TPOT*1000)
			}
		case Refused(r):
			s.Refused++
		default:
			s.Failed++
		}
		if Qualified(r, slo) {
			s.Qualified++
		}
	}
	if s.Offered > 0 {
		s.Attainment = float64(s.Qualified) / float64(s.Offered)
	}
	s.TTFT, s.TPOT = percentiles(ttft), percentiles(tpot)
	return s
}

func percentiles(v []float64) Percentiles {
	slices.Sort(v)
	at := func(q float64) *float64 {
		if len(v) == 0 {
			return nil
		}
		x := v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
		return &x
	}
	return Percentiles{at(0.50), at(0.95), at(0.99)}
}

package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Comparison sets a second run beside a first. Differences are second minus first.
type Comparison struct {
	A        string       `json:"a"`
	B        string       `json:"b"`
	SLO      SLO          `json:"slo"`
	Method   string       `json:"method"`
	Cautions []string     `json:"cautions"`
	All      Difference   `json:"all"`
	ByClass  []Difference `json:"by_class"`
	ByPoint  []Difference `json:"by_point"`
}

// Difference is one group of requests in both runs. A measure is null where too few
// requests have it.
type Difference struct {
	Of          string    `json:"of"`
	Paired      bool      `json:"paired"`
	OfferedA    int       `json:"offered_a"`
	OfferedB    int       `json:"offered_b"`
	QualifiedA  int       `json:"qualified_a"`
	QualifiedB  int       `json:"qualified_b"`
	OnlyA       int       `json:"only_a"` // pairs that qualified in the first alone
	OnlyB       int       `json:"only_b"`
	Attainment  *Interval `json:"attainment"` // of shares, −1 to 1
	TTFTMean    *Interval `json:"ttft_mean_ms"`
	TTFTP95     *Interval `json:"ttft_p95_ms"` // of pairs only
	TPOTMean    *Interval `json:"tpot_mean_ms"`
	BothAnswers int       `json:"both_completed"` // pairs behind the latencies
	Verdict     string    `json:"verdict"`
}

// Verdicts of a difference, by attainment.
const (
	Better    = "better" // the second run
	Worse     = "worse"
	NotDistin = "not distinguishable"
	TooFew    = "too few requests to tell"
)

const method = "95 % confidence. Means: 20 batch means in order of arrival with Student's t (Schmeiser 1982), of the differences of pairs, or Welch's t without pairs. " +
	"p95: circular block bootstrap of pairs, 2,000 rounds, fewer above 200,000 pairs (Politis and Romano 1992). No pair that differs: three over their number (Hanley and Lippman-Hand 1983). " +
	"Each interval stands alone; no correction for their number."

// Compare compares two runs by the first one's promise.
func Compare(a, b *Folder) (Comparison, error) {
	c := Comparison{A: a.Manifest.ID, B: b.Manifest.ID, SLO: a.Manifest.SLO, Method: method, ByClass: []Difference{}, ByPoint: []Difference{},
		Cautions: []string{"the intervals cover what varies within these two runs, not from one run to the next: repeat both before a decision rests on them"}}
	if len(a.Points) == 0 || len(b.Points) == 0 {
		return c, errors.New("compare: a run without a point")
	}
	if a.Manifest.SLO != b.Manifest.SLO {
		c.Cautions = append(c.Cautions, fmt.Sprintf("the runs were made for other promises (%g s and %g s, %g s and %g s): the first one's counts for both",
			a.Manifest.SLO.TTFT, a.Manifest.SLO.TPOT, b.Manifest.SLO.TTFT, b.Manifest.SLO.TPOT))
	}
	for _, f := range []*Folder{a, b} {
		if f.State != StateComplete {
			c.Cautions = append(c.Cautions, fmt.Sprintf("%s is %s: only what it offered is compared", f.Manifest.ID, f.State))
		}
		if d, _ := f.Diagnose(); len(d) > 0 {
			c.Cautions = append(c.Cautions, fmt.Sprintf("%s has %d diagnostics: narwhal bench report %s tells them", f.Manifest.ID, len(d), f.Manifest.ID))
		}
	}
	if a.Manifest.Salt != b.Manifest.Salt {
		c.Cautions = append(c.Cautions, "the words of the prompts differ (--salt); lengths and times count for pairs")
	}
	var all sides
	classes := map[string]*sides{}
	paired := true
	for i := range min(len(a.Points), len(b.Points)) {
		pa, pb := &a.Points[i], &b.Points[i]
		s := pair(pa, pb)
		paired = paired && s.paired
		c.ByPoint = append(c.ByPoint, s.difference(pa.Info.Label, c.SLO))
		all.append(s, nil)
		for _, name := range s.classes() {
			if classes[name] == nil {
				classes[name] = &sides{}
			}
			classes[name].append(s, func(r Row) bool { return r.Class == name })
		}
	}
	if len(a.Points) != len(b.Points) {
		c.Cautions = append(c.Cautions, fmt.Sprintf("%d points and %d: the first %d of each are compared", len(a.Points), len(b.Points), min(len(a.Points), len(b.Points))))
	}
	if !paired {
		c.Cautions = append(c.Cautions, "the runs offered other requests: they are not compared in pairs, which takes larger differences to show (the same load and --seed give pairs)")
	}
	all.paired = paired
	c.All = all.difference("all", c.SLO)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		classes[name].paired = paired
		c.ByClass = append(c.ByClass, classes[name].difference(name, c.SLO))
	}
	return c, nil
}

// sides are the rows of both runs; paired ones stand at the same place.
type sides struct {
	a, b   []Row
	paired bool
}

// pair matches by the place in the offer where both offered the same.
func pair(a, b *PointData) sides {
	if a.Info.Offers != b.Info.Offers || a.Info.Closed != b.Info.Closed || len(a.Arrivals) != len(b.Arrivals) {
		return sides{a.Rows, b.Rows, false}
	}
	s := sides{paired: true}
	at := make(map[int]int, len(b.Rows))
	for i, r := range b.Rows {
		at[r.Index] = i
	}
	for _, r := range a.Rows {
		if i, ok := at[r.Index]; ok {
			other := b.Rows[i]
			other.Class = r.Class // of one request, whatever a damaged row says
			s.a, s.b = append(s.a, r), append(s.b, other)
		}
	}
	return s
}

func (s *sides) append(o sides, only func(Row) bool) {
	for _, x := range []struct {
		to   *[]Row
		from []Row
	}{{&s.a, o.a}, {&s.b, o.b}} {
		for _, r := range x.from {
			if only == nil || only(r) {
				*x.to = append(*x.to, r)
			}
		}
	}
}

func (s *sides) classes() []string {
	seen := map[string]bool{}
	for _, r := range s.a {
		seen[r.Class] = true
	}
	for _, r := range s.b {
		seen[r.Class] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func (s *sides) difference(of string, slo SLO) Difference {
	d := Difference{Of: of, Paired: s.paired, OfferedA: len(s.a), OfferedB: len(s.b), Verdict: TooFew}
	good := func(rows []Row, n *int) []float64 {
		out := make([]float64, len(rows))
		for i, r := range rows {
			if Qualified(r, slo) {
				out[i] = 1
				*n++
			}
		}
		return out
	}
	ga, gb := good(s.a, &d.QualifiedA), good(s.b, &d.QualifiedB)
	if s.paired {
		for i := range ga {
			switch {
			case ga[i] > gb[i]:
				d.OnlyA++
			case gb[i] > ga[i]:
				d.OnlyB++
			}
		}
	}
	d.Attainment = s.mean(ga, gb)
	if d.Attainment != nil && s.paired && d.OnlyA+d.OnlyB == 0 {
		rule := 3 / float64(len(ga))
		d.Attainment = &Interval{0, -rule, rule}
	}
	s.latencies(&d)
	switch i := d.Attainment; {
	case i == nil:
	case !i.Distinct():
		d.Verdict = NotDistin
	case i.Low > 0:
		d.Verdict = Better
	default:
		d.Verdict = Worse
	}
	return d
}

// mean is the difference of two means: of pairs where the sides are paired.
func (s *sides) mean(a, b []float64) *Interval {
	i, ok := differenceInterval(a, b)
	if s.paired {
		diff := make([]float64, len(a))
		for k := range a {
			diff[k] = b[k] - a[k]
		}
		i, ok = meanInterval(diff)
	}
	if !ok {
		return nil
	}
	return &i
}

// latencies are of completed requests; of pairs that both completed where there are pairs.
func (s *sides) latencies(d *Difference) {
	take := func(rows []Row, other []Row, of func(Row) *float64) (out []float64) {
		for i, r := range rows {
			if v := of(r); r.Completed && v != nil && (other == nil || other[i].Completed && of(other[i]) != nil) {
				out = append(out, *v*1000)
			}
		}
		return out
	}
	first, gap := func(r Row) *float64 { return r.TTFT }, func(r Row) *float64 { return r.TPOT }
	oa, ob := s.b, s.a
	if !s.paired {
		oa, ob = nil, nil
	}
	ta, tb := take(s.a, oa, first), take(s.b, ob, first)
	d.TTFTMean = s.mean(ta, tb)
	d.TPOTMean = s.mean(take(s.a, oa, gap), take(s.b, ob, gap))
	if s.paired {
		d.BothAnswers = len(ta)
		if i, ok := pairedQuantile(ta, tb, 0.95); ok {
			d.TTFTP95 = &i
		}
	}
}

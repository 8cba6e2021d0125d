package bench

import (
	"math"
	"path/filepath"
	"slices"
	"time"
)

// RunReport is what a run came to. Its own score is over all offers of all points.
type RunReport struct {
	Run     string  `json:"run"`
	Dir     string  `json:"dir"`
	State   string  `json:"state"`
	Because string  `json:"because,omitempty"`
	Seed    *uint64 `json:"seed"`
	SLO     SLO     `json:"slo"`
	Report
	Points      []PointReport `json:"points"`
	Diagnostics []Finding     `json:"diagnostics"`
	Unchecked   []string      `json:"unchecked"`
}

// PointReport is what one point came to.
type PointReport struct {
	Label   string `json:"label"`
	State   string `json:"state"`
	Planned int    `json:"planned"`
	Report
	ElapsedS      float64        `json:"elapsed_s"`
	OfferedRate   float64        `json:"offered_rps"`   // offers over the time in which they were due
	QualifiedRate float64        `json:"qualified_rps"` // over the time to the last answer
	TokenRate     float64        `json:"output_tokens_per_s"`
	Lag           Percentiles    `json:"lag_ms"` // of what was sent: the load generator's own delay
	Outcomes      map[string]int `json:"outcomes"`
}

// Score reports a run. It rests on the folder alone.
func (f *Folder) Score() RunReport {
	seed := f.Manifest.Seed
	r := RunReport{Run: f.Manifest.ID, Dir: f.Dir, State: f.State, Because: f.Manifest.Because, Seed: &seed, SLO: f.Manifest.SLO, Points: []PointReport{}, Diagnostics: []Finding{}, Unchecked: []string{}}
	var all []Row
	for i := range f.Points {
		p := &f.Points[i]
		all = append(all, p.Rows...)
		r.Points = append(r.Points, p.score(f.Manifest.SLO))
	}
	r.Report = Evaluate(all, f.Manifest.SLO)
	d, unchecked := f.Diagnose()
	r.Diagnostics, r.Unchecked = append(r.Diagnostics, d...), append(r.Unchecked, unchecked...)
	return r
}

// Save keeps the report beside its evidence.
func (r RunReport) Save() error { return writeJSON(filepath.Join(r.Dir, fileReport), r) }

func (p *PointData) score(slo SLO) PointReport {
	out := PointReport{Label: p.Info.Label, State: p.State, Planned: p.Info.Planned, Report: Evaluate(p.Rows, slo), ElapsedS: p.Info.ElapsedS, Outcomes: map[string]int{}}
	var lag []float64
	span, end := 0.0, p.Info.ElapsedS
	for _, r := range p.Rows {
		out.Outcomes[r.Outcome]++
		span, end = math.Max(span, r.At), math.Max(end, r.At+r.Duration)
		if r.Sent {
			lag = append(lag, r.Lag*1000)
		}
	}
	out.ElapsedS, out.Lag = end, percentiles(lag)
	if n := len(p.Rows); n > 1 && span > 0 {
		out.OfferedRate = float64(n-1) / span
	}
	if end > 0 {
		out.QualifiedRate, out.TokenRate = float64(out.Qualified)/end, float64(out.Tokens)/end
	}
	return out
}

func sortRows(rows []Row) { slices.SortFunc(rows, func(a, b Row) int { return a.Index - b.Index }) }

// Horizon is how long a load goes on, to the moment that its last request is due.
func Horizon(arrivals []Arrival) time.Duration {
	if len(arrivals) == 0 {
		return 0
	}
	return arrivals[len(arrivals)-1].At
}

// Planned is how many requests the points that were begun would have offered.
func (r RunReport) Planned() int {
	n := 0
	for _, p := range r.Points {
		n += p.Planned
	}
	return n
}

package bench

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// AIPerfVersion is the release of AIPerf whose files are written, AIPerfSchema the version
// of its summary.
const (
	AIPerfVersion = "0.13.0"
	AIPerfSchema  = "1.4"
)

// AIPerfFiles are the files of an export, as AIPerf names them.
var AIPerfFiles = []string{"profile_export.jsonl", "profile_export_aiperf.json", "profile_export_aiperf.csv"}

type aiperfValue struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

type aiperfError struct {
	Code    *int   `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// aiperfRecord is a line of profile_export.jsonl. AIPerf's times run from the moment of
// sending; the moment at which the request was due is credit_issued_ns.
type aiperfRecord struct {
	Metadata struct {
		Session   int    `json:"session_num"`
		RequestID string `json:"x_request_id"`
		Conv      string `json:"conversation_id"`
		Turn      int    `json:"turn_index"`
		Credit    int64  `json:"credit_issued_ns"`
		Start     int64  `json:"request_start_ns"`
		Ack       *int64 `json:"request_ack_ns"`
		End       int64  `json:"request_end_ns"`
		Worker    string `json:"worker_id"`
		Processor string `json:"record_processor_id"`
		Phase     string `json:"benchmark_phase"`
		Cancelled bool   `json:"was_cancelled"`
		CancelNS  *int64 `json:"cancellation_time_ns"`
	} `json:"metadata"`
	Metrics map[string]aiperfValue `json:"metrics"`
	Error   *aiperfError           `json:"error"`
}

// aiperfStats is a metric of the summary.
type aiperfStats struct {
	Unit  string   `json:"unit"`
	Avg   *float64 `json:"avg,omitempty"`
	P1    *float64 `json:"p1,omitempty"`
	P5    *float64 `json:"p5,omitempty"`
	P10   *float64 `json:"p10,omitempty"`
	P25   *float64 `json:"p25,omitempty"`
	P50   *float64 `json:"p50,omitempty"`
	P75   *float64 `json:"p75,omitempty"`
	P90   *float64 `json:"p90,omitempty"`
	P95   *float64 `json:"p95,omitempty"`
	P99   *float64 `json:"p99,omitempty"`
	Min   *float64 `json:"min,omitempty"`
	Max   *float64 `json:"max,omitempty"`
	Std   *float64 `json:"std,omitempty"`
	Count *int     `json:"count,omitempty"`
	Sum   *float64 `json:"sum,omitempty"`
}

// aiperfMetric is a metric with the name that AIPerf's table has for it.
type aiperfMetric struct{ tag, header, unit string }

var (
	aiperfLatency   = aiperfMetric{"request_latency", "Request Latency", "ms"}
	aiperfTTFT      = aiperfMetric{"time_to_first_token", "Time to First Token", "ms"}
	aiperfITL       = aiperfMetric{"inter_token_latency", "Inter Token Latency", "ms"}
	aiperfISL       = aiperfMetric{"input_sequence_length", "Input Sequence Length", "tokens"}
	aiperfOSL       = aiperfMetric{"output_sequence_length", "Output Sequence Length", "tokens"}
	aiperfPerUser   = aiperfMetric{"output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user"}
	aiperfRecords   = []aiperfMetric{aiperfISL, aiperfITL, aiperfOSL, aiperfPerUser, aiperfLatency, aiperfTTFT}
	aiperfDuration  = aiperfMetric{"benchmark_duration", "Benchmark Duration", "sec"}
	aiperfErrors    = aiperfMetric{"error_request_count", "Error Request Count", "requests"}
	aiperfGood      = aiperfMetric{"good_request_count", "Good Request Count", "requests"}
	aiperfGoodput   = aiperfMetric{"goodput", "Goodput", "requests/sec"}
	aiperfTokens    = aiperfMetric{"output_token_throughput", "Output Token Throughput", "tokens/sec"}
	aiperfCount     = aiperfMetric{"request_count", "Request Count", "requests"}
	aiperfRequests  = aiperfMetric{"request_throughput", "Request Throughput", "requests/sec"}
	aiperfAggregate = []aiperfMetric{aiperfDuration, aiperfErrors, aiperfGood, aiperfGoodput, aiperfTokens, aiperfCount, aiperfRequests}
)

// WriteAIPerf writes one point in AIPerf's forms into a folder.
func (f *Folder) WriteAIPerf(dir string, point int) error {
	if point < 0 || point >= len(f.Points) {
		return fmt.Errorf("export: no point %d", point+1)
	}
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p := &f.Points[point]
	var records []aiperfRecord
	values := map[string][]float64{}
	for _, r := range p.Rows {
		if !r.Sent {
			continue // AIPerf knows no offer that was not sent
		}
		rec := p.aiperf(r)
		records = append(records, rec)
		if rec.Error == nil {
			for tag, v := range rec.Metrics {
				values[tag] = append(values[tag], v.Value)
			}
		}
	}
	if err := writeLines(filepath.Join(dir, AIPerfFiles[0]), records); err != nil {
		return err
	}
	stats := map[string]aiperfStats{}
	for _, m := range aiperfRecords {
		if v := values[m.tag]; len(v) > 0 {
			stats[m.tag] = distribution(m.unit, v)
		}
	}
	for m, v := range p.aiperfTotals(f.Manifest.SLO) {
		stats[m.tag] = aiperfStats{Unit: m.unit, Avg: &v}
	}
	if err := writeJSON(filepath.Join(dir, AIPerfFiles[1]), f.aiperfSummary(p, stats)); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, AIPerfFiles[2]), aiperfCSV(stats), 0o600)
}

func (p *PointData) aiperf(r Row) aiperfRecord {
	var rec aiperfRecord
	at := func(s float64) int64 { return p.Info.Started.Add(time.Duration(s * float64(time.Second))).UnixNano() }
	m := &rec.Metadata
	m.Session, m.RequestID, m.Conv = r.Index, r.ClientRID, fmt.Sprintf("session_%06d", r.Index)
	m.Credit, m.Start, m.End = at(r.At), at(r.At+r.Lag), at(r.At+r.Duration)
	m.Worker, m.Processor, m.Phase = "narwhal", "narwhal", "profiling"
	m.Cancelled = r.Outcome == OutcomeTimeout || r.Outcome == OutcomeBrokenOff
	if m.Cancelled {
		m.CancelNS = &m.End
	}
	if !r.Completed {
		rec.Error = &aiperfError{Type: r.Outcome, Message: r.Error}
		if r.Status != 0 {
			rec.Error.Code = &r.Status
		}
		rec.Metrics = map[string]aiperfValue{"error_isl": {float64(r.Input), "tokens"}}
		return rec
	}
	rec.Metrics = map[string]aiperfValue{
		aiperfLatency.tag: {(r.Duration - r.Lag) * 1000, "ms"},
		aiperfISL.tag:     {float64(r.PromptTokens), "tokens"},
		aiperfOSL.tag:     {float64(r.OutputTokens), "tokens"},
	}
	if r.TTFT != nil {
		rec.Metrics[aiperfTTFT.tag] = aiperfValue{(*r.TTFT - r.Lag) * 1000, "ms"}
	}
	if r.TPOT != nil {
		rec.Metrics[aiperfITL.tag] = aiperfValue{*r.TPOT * 1000, "ms"}
		if *r.TPOT > 0 {
			rec.Metrics[aiperfPerUser.tag] = aiperfValue{1 / *r.TPOT, "tokens/sec/user"}
		}
	}
	return rec
}

// aiperfTotals are of requests that were sent. Goodput keeps this program's promise, whose
// first token counts from the moment that the request was due.
func (p *PointData) aiperfTotals(slo SLO) map[aiperfMetric]float64 {
	s := p.score(slo)
	wrong := 0
	for _, r := range p.Rows {
		if r.Sent && !r.Completed {
			wrong++
		}
	}
	out := map[aiperfMetric]float64{aiperfDuration: s.ElapsedS, aiperfErrors: float64(wrong), aiperfCount: float64(s.Completed), aiperfGood: float64(s.Qualified)}
	if s.ElapsedS > 0 {
		out[aiperfRequests], out[aiperfTokens], out[aiperfGoodput] = float64(s.Completed)/s.ElapsedS, s.TokenRate, s.QualifiedRate
	}
	return out
}

func (f *Folder) aiperfSummary(p *PointData, stats map[string]aiperfStats) map[string]any {
	type counted struct {
		Details aiperfError `json:"error_details"`
		Count   int         `json:"count"`
	}
	faults := []counted{}
	for _, r := range p.Rows {
		if !r.Sent || r.Completed {
			continue
		}
		e := aiperfError{Type: r.Outcome, Message: r.Error}
		if status := r.Status; status != 0 {
			e.Code = &status
		}
		at := slices.IndexFunc(faults, func(c counted) bool {
			return c.Details.Type == e.Type && c.Details.Message == e.Message && (c.Details.Code == nil) == (e.Code == nil) && (e.Code == nil || *e.Code == *c.Details.Code)
		})
		if at < 0 {
			faults, at = append(faults, counted{Details: e}), len(faults)
		}
		faults[at].Count++
	}
	out := map[string]any{"schema_version": AIPerfSchema, "aiperf_version": AIPerfVersion, "benchmark_id": f.Manifest.ID, "was_cancelled": p.State != StateComplete,
		"error_summary": faults, "start_time": p.Info.Started, "end_time": p.Info.Started.Add(time.Duration(p.Info.ElapsedS * float64(time.Second))),
		"run_info": map[string]any{"benchmark_id": f.Manifest.ID, "random_seed": f.Manifest.Seed, "trial": 0, "run_label": p.Info.Label}}
	for tag, s := range stats {
		out[tag] = s
	}
	return out
}

func distribution(unit string, v []float64) aiperfStats {
	v = slices.Clone(v)
	slices.Sort(v)
	n, m, sum := len(v), mean(v), 0.0
	total := m * float64(n)
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	std := 0.0
	if n > 1 {
		std = math.Sqrt(sum / float64(n-1))
	}
	// Linear interpolation between ranks, as AIPerf's.
	at := func(q float64) *float64 {
		k := q / 100 * float64(n-1)
		i := int(k)
		x := v[i]
		if i+1 < n {
			x += (k - float64(i)) * (v[i+1] - v[i])
		}
		return &x
	}
	return aiperfStats{Unit: unit, Avg: &m, P1: at(1), P5: at(5), P10: at(10), P25: at(25), P50: at(50), P75: at(75), P90: at(90), P95: at(95), P99: at(99),
		Min: &v[0], Max: &v[n-1], Std: &std, Count: &n, Sum: &total}
}

// aiperfCSV has two tables: distributions, then single values.
func aiperfCSV(stats map[string]aiperfStats) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', 2, 64)
	}
	name := func(m aiperfMetric) string {
		if m.unit == "requests" {
			return m.header
		}
		return m.header + " (" + m.unit + ")"
	}
	rows := [][]string{{"Metric", "avg", "min", "max", "sum", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std"}}
	for _, m := range aiperfRecords {
		if s, ok := stats[m.tag]; ok {
			rows = append(rows, []string{name(m), number(s.Avg), number(s.Min), number(s.Max), number(s.Sum), number(s.P1), number(s.P5), number(s.P10), number(s.P25), number(s.P50),
				number(s.P75), number(s.P90), number(s.P95), number(s.P99), number(s.Std)})
		}
	}
	_ = w.WriteAll(rows) // into memory
	b.WriteString("\r\n")
	rows = [][]string{{"Metric", "Value"}}
	for _, m := range aiperfAggregate {
		if s, ok := stats[m.tag]; ok {
			rows = append(rows, []string{name(m), number(s.Avg)})
		}
	}
	_ = w.WriteAll(rows)
	return b.Bytes()
}

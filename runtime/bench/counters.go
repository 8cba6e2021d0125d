package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/exposition"
)

// Bounds of a metrics page.
const (
	maxMetrics     = 8 << 20
	maxMetricsLine = 64 << 10
	maxSeries      = 100_000
)

// Series is one sample of a metrics page.
type Series struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// ParseMetrics reads the Prometheus text format, version 0.0.4. A line that it cannot read
// fails the page: half a page would make counters seem to vanish.
func ParseMetrics(page []byte) ([]Series, error) {
	if len(page) > maxMetrics {
		return nil, fmt.Errorf("read metrics: more than %d bytes", maxMetrics)
	}
	in := bufio.NewScanner(bytes.NewReader(page))
	in.Buffer(make([]byte, 0, 4096), maxMetricsLine)
	var out []Series
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseSeries(line)
		if err != nil {
			return nil, fmt.Errorf("read metrics: line %d: %w", n, err)
		}
		if out = append(out, s); len(out) > maxSeries {
			return nil, fmt.Errorf("read metrics: more than %d series", maxSeries)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return out, nil
}

func parseSeries(line string) (Series, error) {
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 {
		return Series{}, errors.New("want NAME VALUE")
	}
	s, rest := Series{Name: line[:end]}, line[end:]
	if rest[0] == '{' {
		var err error
		if s.Labels, rest, err = parseLabels(rest[1:]); err != nil {
			return s, err
		}
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return s, fmt.Errorf("%.80q: want one value", s.Name)
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return s, fmt.Errorf("%.80q: value %.40q is no number", s.Name, fields[0])
	}
	s.Value = v
	return s, nil
}

// parseLabels reads behind the brace and returns what follows the closing one.
func parseLabels(s string) (map[string]string, string, error) {
	out := map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t,")
		if strings.HasPrefix(s, "}") {
			return out, s[1:], nil
		}
		name, rest, ok := strings.Cut(s, "=")
		rest = strings.TrimLeft(rest, " \t")
		if !ok || rest == "" || rest[0] != '"' {
			return nil, "", errors.New("labels: want NAME=\"VALUE\"")
		}
		value, after, ok := exposition.LabelValue(rest)
		if !ok {
			return nil, "", errors.New("labels: a value without an end")
		}
		out[strings.TrimSpace(name)] = value
		s = after
	}
}

// outcomeCounters says which counter of the router counts which terminal of its journal;
// the first counts all of them.
var outcomeCounters = []struct{ Name, Terminal string }{
	{"narwhal_offered_total", ""},
	{"narwhal_served_total", "completed"},
	{"narwhal_failed_total", "failed"},
	{"narwhal_refused_total", "refused"},
	{"narwhal_rejected_total", "rejected"},
	{"narwhal_expired_total", "expired"},
	{"narwhal_invalid_requests_total", "invalid"},
	{"narwhal_cancelled_total", "cancelled"},
}

// movesCounter counts role moves.
const movesCounter = "narwhal_flips_total"

// counters sums what is reconciled over labels; a counter without a series is absent.
func counters(series []Series) map[string]float64 {
	out := map[string]float64{}
	for _, s := range series {
		if s.Name != movesCounter && !isOutcome(s.Name) || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
			continue
		}
		out[s.Name] += s.Value
	}
	return out
}

func isOutcome(name string) bool {
	for _, c := range outcomeCounters {
		if c.Name == name {
			return true
		}
	}
	return false
}

// PromiseOf reads the promise that a router states on its metrics page.
func PromiseOf(series []Series) (SLO, bool) {
	var slo SLO
	for _, s := range series {
		if s.Name != "narwhal_slo_seconds" || !(s.Value > 0) || math.IsInf(s.Value, 0) {
			continue
		}
		switch s.Labels["metric"] {
		case "ttft":
			slo.TTFT = s.Value
		case "tpot":
			slo.TPOT = s.Value
		}
	}
	return slo, slo.TTFT > 0 && slo.TPOT > 0
}

package engine

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/exposition"
)

// Bounds of a scrape. A current engine writes about 65 kB and 1 000 series.
const (
	maxMetricsBytes = 16 << 20
	maxSamples      = 100_000
	maxLabels       = 128
	maxMetricsLine  = 64 << 10
)

// Label is one name and value of a series.
type Label struct{ Name, Value string }

// Sample is one line of a scrape.
type Sample struct {
	Name   string
	Labels []Label
	Value  float64
}

// Label returns a label's value, or "".
func (s Sample) Label(name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Samples is one scrape, indexed by name.
type Samples struct {
	byName map[string][]Sample
	// Skipped counts lines that could not be read.
	Skipped int
}

// All returns the series of a name. The caller must not change them.
func (s Samples) All(name string) []Sample { return s.byName[name] }

// Len counts the series.
func (s Samples) Len() int {
	n := 0
	for _, v := range s.byName {
		n += len(v)
	}
	return n
}

// Sum adds the series of a name whose labels match all pairs ("source", "local_compute").
// ok is false when none matches.
func (s Samples) Sum(name string, pairs ...string) (v float64, ok bool) {
	for _, m := range s.byName[name] {
		if m.matches(pairs) {
			v, ok = v+m.Value, true
		}
	}
	return v, ok
}

// Quantity is Sum where that is finite and not negative, as every count and size is. Otherwise ok
// is false: what an engine says of itself may be anything.
func (s Samples) Quantity(name string, pairs ...string) (v float64, ok bool) {
	v, ok = s.Sum(name, pairs...)
	if !ok || !(v >= 0) || math.IsInf(v, 1) {
		return 0, false
	}
	return v, true
}

// mostRequests is more requests than any engine holds.
const mostRequests = 1e9

// Requests is a Quantity that can be a number of requests.
func (s Samples) Requests(name string, pairs ...string) (n int, ok bool) {
	v, ok := s.Quantity(name, pairs...)
	if !ok || v > mostRequests {
		return 0, false
	}
	return int(v), true
}

func (s Sample) matches(pairs []string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if s.Label(pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}

// ParseMetrics reads the Prometheus text format. It is tolerant: comments and lines that it
// cannot read are skipped and counted. It fails only on a read error or a passed bound.
func ParseMetrics(r io.Reader) (Samples, error) {
	out := Samples{byName: map[string][]Sample{}}
	limited := &io.LimitedReader{R: r, N: maxMetricsBytes + 1}
	sc := bufio.NewReaderSize(limited, maxMetricsLine)
	count := 0
	for {
		line, err := sc.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			out.Skipped++
			if err = discardLine(sc); err == nil {
				continue
			}
			line = nil
		}
		if limited.N <= 0 || count > maxSamples {
			return out, &TooLargeError{What: "metrics", Limit: maxMetricsBytes}
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			if m, ok := parseSample(string(line)); ok {
				out.byName[m.Name] = append(out.byName[m.Name], m)
				count++
			} else {
				out.Skipped++
			}
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func discardLine(r *bufio.Reader) error {
	for {
		_, err := r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func parseSample(line string) (Sample, bool) {
	i := strings.IndexAny(line, "{ \t")
	if i <= 0 {
		return Sample{}, false
	}
	m := Sample{Name: line[:i]}
	rest := line[i:]
	if rest[0] == '{' {
		var ok bool
		if m.Labels, rest, ok = parseLabels(rest[1:]); !ok {
			return Sample{}, false
		}
	}
	f := strings.Fields(rest)
	if len(f) == 0 {
		return Sample{}, false
	}
	v, err := strconv.ParseFloat(f[0], 64)
	m.Value = v
	return m, err == nil
}

// parseLabels reads up to the closing brace and returns what follows it.
func parseLabels(s string) (labels []Label, rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], true
		}
		eq := strings.IndexByte(s, '=')
		if eq <= 0 || len(labels) >= maxLabels {
			return nil, "", false
		}
		name := strings.TrimRight(s[:eq], " \t")
		s = strings.TrimLeft(s[eq+1:], " \t")
		var value string
		if value, s, ok = exposition.LabelValue(s); !ok {
			return nil, "", false
		}
		labels = append(labels, Label{name, value})
	}
}

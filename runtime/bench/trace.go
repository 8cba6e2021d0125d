// Package bench offers load to a router and scores what came back.
//
// It promises open-loop load: a request is due when the plan says so, and every delay
// after that moment counts against the system, the load generator's own lag included.
// An offer that was never sent is a miss. It refuses to score without a promise, and to
// read a trace past its bounds.
package bench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arrival is one offer of a trace.
type Arrival struct {
	At     time.Duration `json:"at"` // since the trace began
	Input  int           `json:"input"`
	Output int           `json:"output"`
	Class  string        `json:"class"`
	// Family names requests that begin alike: their first Prefix tokens of Input are the
	// same text. 0 = a request like no other.
	Family int `json:"family,omitempty"`
	Prefix int `json:"prefix,omitempty"`
}

// Trace is a list of arrivals in order of time. Start is the wall time of the first one,
// zero for a trace that has none.
type Trace struct {
	Start    time.Time
	Arrivals []Arrival
}

// Bounds of a trace that is read.
const (
	maxArrivals   = 2_000_000
	maxTraceBytes = 1 << 30 // after decompression
	maxTraceLine  = 1 << 20
	maxLength     = 10_000_000 // tokens of one request
)

//go:embed traces/*.csv.gz
var embedded embed.FS

// Embedded returns a slice that the binary carries: "azure-conv", "azure-code" or "azure",
// which merges both. Source: Azure/AzurePublicDataset, CC-BY 4.0.
func Embedded(name string) (Trace, error) {
	if name == "azure" {
		conv, err := Embedded("azure-conv")
		if err != nil {
			return Trace{}, err
		}
		code, err := Embedded("azure-code")
		if err != nil {
			return Trace{}, err
		}
		return Merge(conv, code), nil
	}
	f, err := embedded.Open("traces/" + name + ".csv.gz")
	if err != nil {
		return Trace{}, fmt.Errorf("open trace: no embedded trace %q; there are azure, azure-conv, azure-code", name)
	}
	defer f.Close()
	return Read(f, strings.TrimPrefix(name, "azure-"))
}

// Open reads a trace file; class names its requests where the format does not.
func Open(path, class string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Trace{}, fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	if class == "" {
		class = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), filepath.Ext(strings.TrimSuffix(path, ".gz")))
	}
	t, err := Read(f, class)
	if err != nil {
		return t, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return t, nil
}

// Read reads a trace, plain or gzipped, in any known format: the Azure CSV
// (TIMESTAMP,ContextTokens,GeneratedTokens), Mooncake's JSON lines, a router's journal, or
// at_s,input,output,class. Arrivals are sorted and start at 0, but for the last format,
// whose times stand.
func Read(r io.Reader, class string) (Trace, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if head, _ := in.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return Trace{}, fmt.Errorf("read trace: %w", err)
		}
		defer z.Close()
		in = bufio.NewReaderSize(z, 64<<10)
	}
	limited := &io.LimitedReader{R: in, N: maxTraceBytes + 1}
	if isJournal(in) {
		return traceOfJournal(limited, class)
	}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 64<<10), maxTraceLine)
	p := &parser{class: class}
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := p.line(line); err != nil {
			return Trace{}, fmt.Errorf("read trace: line %d: %w", n, err)
		}
		if len(p.out) > maxArrivals || limited.N <= 0 {
			return Trace{}, fmt.Errorf("read trace: more than %d arrivals or %d bytes", maxArrivals, maxTraceBytes)
		}
	}
	if err := lines.Err(); err != nil {
		return Trace{}, fmt.Errorf("read trace: %w", err)
	}
	return p.trace()
}

type parser struct {
	class   string
	format  func([]byte) (arrival, error)
	columns map[string]int
	fixed   bool // times stand as they are
	wall    bool
	out     []arrival
}

// arrival holds absolute time until the first one is known.
type arrival struct {
	at float64 // seconds
	a  Arrival
}

func (p *parser) line(b []byte) error {
	if p.format == nil {
		if p.detect(b) {
			return nil // a header
		}
		if p.format == nil {
			return errors.New("format is not known: want TIMESTAMP,ContextTokens,GeneratedTokens; at_s,input,output,class; or JSON lines with timestamp, input_length, output_length")
		}
	}
	a, err := p.format(b)
	if err != nil {
		return err
	}
	return p.take(a)
}

// take adds an arrival that is within bounds.
func (p *parser) take(a arrival) error {
	if math.IsNaN(a.at) || math.Abs(a.at) > 1e11 {
		return errors.New("time is out of range")
	}
	if a.a.Input < 0 || a.a.Output < 0 || a.a.Input > maxLength || a.a.Output > maxLength {
		return errors.New("length is out of range")
	}
	p.out = append(p.out, a)
	return nil
}

// detect picks the format by the first line and reports whether that was a header.
func (p *parser) detect(b []byte) bool {
	if b[0] == '{' {
		p.format = p.mooncake
		return false
	}
	p.columns = map[string]int{}
	for i, name := range strings.Split(string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))), ",") {
		p.columns[strings.TrimSpace(name)] = i
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { _, ok := p.columns[n]; return !ok })
	}
	switch {
	case has("TIMESTAMP", "ContextTokens", "GeneratedTokens"):
		p.format, p.wall = p.azure, true
	case has("at_s", "input", "output"):
		p.format, p.fixed = p.plain, true
	}
	return p.format != nil
}

func (p *parser) fields(b []byte) (func(string) string, error) {
	rec, err := csv.NewReader(bytes.NewReader(b)).Read()
	if err != nil {
		return nil, err
	}
	return func(name string) string {
		if i, ok := p.columns[name]; ok && i < len(rec) {
			return strings.TrimSpace(rec[i])
		}
		return ""
	}, nil
}

func (p *parser) azure(b []byte) (arrival, error) {
	get, err := p.fields(b)
	if err != nil {
		return arrival{}, err
	}
	t, err := time.Parse("2006-01-02 15:04:05.999999999", get("TIMESTAMP"))
	if err != nil {
		return arrival{}, errors.New("TIMESTAMP: want a form like 2023-11-16 18:15:46.6805900")
	}
	a := arrival{at: float64(t.Unix()) + float64(t.Nanosecond())/1e9, a: Arrival{Class: p.class}}
	if a.a.Input, err = strconv.Atoi(get("ContextTokens")); err != nil {
		return a, errors.New("ContextTokens: want an integer")
	}
	if a.a.Output, err = strconv.Atoi(get("GeneratedTokens")); err != nil {
		return a, errors.New("GeneratedTokens: want an integer")
	}
	return a, nil
}

func (p *parser) plain(b []byte) (arrival, error) {
	get, err := p.fields(b)
	if err != nil {
		return arrival{}, err
	}
	a := arrival{a: Arrival{Class: get("class")}}
	if a.a.Class == "" {
		a.a.Class = p.class
	}
	if a.at, err = strconv.ParseFloat(get("at_s"), 64); err != nil || a.at < 0 {
		return a, errors.New("at_s: want seconds ≥ 0")
	}
	if a.a.Input, err = strconv.Atoi(get("input")); err != nil {
		return a, errors.New("input: want an integer")
	}
	if a.a.Output, err = strconv.Atoi(get("output")); err != nil {
		return a, errors.New("output: want an integer")
	}
	return a, a.family(get)
}

// family reads the columns that only this program writes.
func (a *arrival) family(get func(string) string) (err error) {
	for name, to := range map[string]*int{"family": &a.a.Family, "prefix": &a.a.Prefix} {
		if text := get(name); text != "" {
			if *to, err = strconv.Atoi(text); err != nil || *to < 0 || *to > maxLength {
				return fmt.Errorf("%s: want an integer from 0", name)
			}
		}
	}
	if a.a.Prefix > a.a.Input {
		return errors.New("prefix: more than input")
	}
	return nil
}

func (p *parser) mooncake(b []byte) (arrival, error) {
	var m struct {
		At     *float64 `json:"timestamp"`
		Input  *int     `json:"input_length"`
		Output *int     `json:"output_length"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return arrival{}, err
	}
	if m.At == nil || m.Input == nil || m.Output == nil {
		return arrival{}, errors.New("timestamp, input_length or output_length is missing")
	}
	return arrival{at: *m.At / 1000, a: Arrival{Input: *m.Input, Output: *m.Output, Class: p.class}}, nil
}

func (p *parser) trace() (Trace, error) {
	if len(p.out) == 0 {
		return Trace{}, errors.New("read trace: no arrivals")
	}
	slices.SortStableFunc(p.out, func(a, b arrival) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	from := p.out[0].at
	var t Trace
	if p.wall {
		t.Start = time.Unix(int64(from), int64((from-math.Floor(from))*1e9)).UTC()
	}
	if p.fixed {
		from = 0
	}
	for _, a := range p.out {
		a.a.At = time.Duration((a.at - from) * float64(time.Second))
		t.Arrivals = append(t.Arrivals, a.a)
	}
	return t, nil
}

// Merge joins traces by wall time where they have one, else by their own clocks.
func Merge(traces ...Trace) Trace {
	var out Trace
	for _, t := range traces {
		if out.Start.IsZero() || !t.Start.IsZero() && t.Start.Before(out.Start) {
			out.Start = t.Start
		}
	}
	for _, t := range traces {
		shift := time.Duration(0)
		if !t.Start.IsZero() {
			shift = t.Start.Sub(out.Start)
		}
		for _, a := range t.Arrivals {
			a.At += shift
			out.Arrivals = append(out.Arrivals, a)
		}
	}
	slices.SortStableFunc(out.Arrivals, func(a, b Arrival) int { return int(min(1, max(-1, a.At-b.At))) })
	return out
}

// Shape returns the first n arrivals (0 = all) spaced evenly at rate requests a second
// (0 = as recorded), with lengths cut to limits (0 = none).
func (t Trace) Shape(n int, rate float64, maxInput, maxOutput int) []Arrival {
	if n <= 0 {
		n = len(t.Arrivals)
	}
	out := make([]Arrival, 0, n)
	for i := range n {
		a := t.Arrivals[i%len(t.Arrivals)]
		if rate > 0 {
			a.At = time.Duration(float64(i) / rate * float64(time.Second))
		} else if lap := i / len(t.Arrivals); lap > 0 {
			a.At += time.Duration(lap) * (t.Arrivals[len(t.Arrivals)-1].At + time.Second)
		}
		if maxInput > 0 {
			a.Input = min(a.Input, maxInput)
		}
		if maxOutput > 0 {
			a.Output = min(a.Output, maxOutput)
		}
		out = append(out, a)
	}
	return out
}

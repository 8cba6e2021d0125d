package preflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// SamplesSchema and SamplesVersion name the document of measured points beside a profile store.
const (
	SamplesSchema  = "narwhal.profile-samples"
	SamplesVersion = 1
	maxSamples     = 64 << 20
)

// Samples are the measured points of engines; a store's rows follow from them.
type Samples struct {
	Schema  string              `json:"schema"`
	Version int                 `json:"schema_version"`
	Meta    map[string]any      `json:"meta"`
	Model   string              `json:"model"`
	Engines map[string]Measured `json:"engines"`
}

// Measured are the points of one engine and the process that they are of.
type Measured struct {
	Generation   string   `json:"generation_digest"`
	Version      string   `json:"engine_version"`
	ProcessStart float64  `json:"process_start_time_seconds"`
	Points       Profiled `json:"points"`
}

// NewSamples is a document without engines.
func NewSamples(model string, meta map[string]any) Samples {
	return Samples{Schema: SamplesSchema, Version: SamplesVersion, Meta: meta, Model: model, Engines: map[string]Measured{}}
}

// ReadSamples reads a document strictly. Whether points follow a curve is told by fitting them.
func ReadSamples(r io.Reader) (s Samples, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSamples+1))
	if err != nil {
		return s, fmt.Errorf("read samples: %w", err)
	}
	if len(b) > maxSamples {
		return s, fmt.Errorf("read samples: longer than %d bytes", maxSamples)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Samples{}, fmt.Errorf("read samples: %w", err)
	}
	switch {
	case dec.More():
		err = errors.New("data after the document")
	case s.Schema != SamplesSchema || s.Version != SamplesVersion:
		err = fmt.Errorf("schema %.64q version %d, want %q version %d", s.Schema, s.Version, SamplesSchema, SamplesVersion)
	case s.Engines == nil:
		err = errors.New("engines is absent")
	}
	for e, m := range s.Engines {
		if e == "" || m.Points.IID != e {
			err = errors.Join(err, fmt.Errorf("engine %.64q: its points are of %.64q", e, m.Points.IID))
		}
		if p, d := len(m.Points.Samples.Prefill), len(decodeCells(m.Points.Samples)); p > mostPrefills || d > mostCohorts {
			err = errors.Join(err, fmt.Errorf("engine %.64q: %d prefills, %d different cohorts, want at most %d and %d", e, p, d, mostPrefills, mostCohorts))
		}
		if m.Points.Capacity < 0 || m.Points.Capacity > maxCapacity {
			err = errors.Join(err, fmt.Errorf("engine %.64q: kv_capacity_tokens is %d", e, m.Points.Capacity))
		}
	}
	if err != nil {
		return Samples{}, fmt.Errorf("read samples: %w", err)
	}
	return s, nil
}

// Bounds of what is read. Fitting takes the square of the cohorts.
const (
	maxCapacity  = 1e9 // tokens, more than any cache holds
	mostPrefills = 100_000
	mostCohorts  = 256
)

// Encode returns the document as JSON.
func (s Samples) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	return append(b, '\n'), nil
}

// Join puts the points of two measurements of one process together. Equal ones are one.
func (m Measured) Join(o Measured) (Measured, error) {
	if reflect.DeepEqual(m, o) {
		return m, nil
	}
	a, b := m.Points, o.Points
	switch {
	case m.Generation != o.Generation:
		return m, fmt.Errorf("its points are of two generations, %s and %s", clipped(m.Generation), clipped(o.Generation))
	case a.Capacity != b.Capacity:
		return m, fmt.Errorf("its cache held %d tokens in one and %d in the other", a.Capacity, b.Capacity)
	case a.Role != b.Role || a.Peer != b.Peer:
		return m, fmt.Errorf("it was measured with %s as %s in one and with %s as %s in the other", orNone(a.Peer), orNone(a.Role), orNone(b.Peer), orNone(b.Role))
	}
	a.Samples.Prefill = append(append(a.Samples.Prefill[:0:0], a.Samples.Prefill...), b.Samples.Prefill...)
	a.Samples.Decode = append(append(a.Samples.Decode[:0:0], a.Samples.Decode...), b.Samples.Decode...)
	a.Beside = append(append(a.Beside[:0:0], a.Beside...), b.Beside...)
	a.Warm = append(append(a.Warm[:0:0], a.Warm...), b.Warm...)
	a.TookMS, a.Rounds, a.Discarded, a.Ended = a.TookMS+b.TookMS, a.Rounds+b.Rounds, a.Discarded+b.Discarded, b.Ended
	m.Points = a
	return m, nil
}

func clipped(s string) string {
	if s == "" {
		return "none"
	}
	return fmt.Sprintf("%.19s…", strings.ToValidUTF8(s, "?"))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

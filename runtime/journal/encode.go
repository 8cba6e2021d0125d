package journal

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// sizeOf estimates what a row occupies in memory, in bytes.
func sizeOf(r *Row) int64 {
	n := 768 + len(r.Decision) + len(r.RID) + 320*len(r.Failures) + 48*len(r.CachedTokens)
	for _, d := range r.Earlier {
		n += 24 + len(d)
	}
	for _, s := range []*string{r.ClientRID, r.Error, r.Prefill, r.Decode} {
		if s != nil {
			n += 16 + len(*s)
		}
	}
	return int64(n)
}

// encoder turns items into lines, in the writer's goroutine.
type encoder struct {
	run string
	out bytes.Buffer
	row *json.Encoder
}

func newEncoder(run string) *encoder {
	e := &encoder{run: run}
	e.row = json.NewEncoder(&e.out)
	e.row.SetEscapeHTML(false)
	return e
}

// line returns one line with its end; it is valid until the next call.
func (e *encoder) line(it *item) ([]byte, error) {
	e.out.Reset()
	if it.event != nil {
		err := e.event(it.event)
		return e.out.Bytes(), err
	}
	it.row.Head = Head{Schema, Version, e.run}
	err := e.row.Encode(&it.row)
	return e.out.Bytes(), err
}

func (e *encoder) meta(m Meta) []byte {
	e.out.Reset()
	m.Schema, m.Version = Schema, Version
	// Meta holds no value that cannot be written but a parameter or a curve that is not finite.
	if e.row.Encode(map[string]Meta{"meta": m}) != nil {
		e.out.Reset()
		m.Params, m.Curves, m.Admission.Margin = Meta{}.Params, nil, 0
		_ = e.row.Encode(map[string]Meta{"meta": m})
	}
	return e.out.Bytes()
}

var headKeys = []string{"schema", "schema_version", "run", "event", "at", "at_unix"}

// event writes the head first, then the fields in the order of their names.
func (e *encoder) event(v *Event) error {
	e.out.WriteString(`{"schema":"` + Schema + `","schema_version":` + strconv.Itoa(Version) + `,"run":`)
	if err := e.value(e.run); err != nil {
		return err
	}
	e.out.WriteString(`,"event":`)
	if err := e.value(v.Name); err != nil {
		return err
	}
	for _, at := range []struct {
		key string
		v   float64
	}{{"at", v.At}, {"at_unix", v.AtUnix}} {
		if math.IsNaN(at.v) {
			continue
		}
		if err := e.member(at.key, at.v); err != nil {
			return err
		}
	}
	keys := make([]string, 0, len(v.Fields))
	for k := range v.Fields {
		if !slices.Contains(headKeys, k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := e.member(k, v.Fields[k]); err != nil {
			return err
		}
	}
	e.out.WriteString("}\n")
	return nil
}

func (e *encoder) member(key string, v any) error {
	e.out.WriteByte(',')
	if err := e.value(key); err != nil {
		return err
	}
	e.out.WriteByte(':')
	return e.value(v)
}

func (e *encoder) value(v any) error {
	if err := e.row.Encode(v); err != nil {
		return err
	}
	e.out.Truncate(e.out.Len() - 1) // Encode ends with a newline
	return nil
}

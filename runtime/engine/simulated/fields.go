package simulated

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// fields reads a body's members as the real schema does: wrong types are refused before any
// member's value is looked at, unknown members pass. The first refusal stays.
type fields struct {
	o   splice.Object
	err *refusal
}

func readFields(body []byte) (*fields, *refusal) {
	if len(body) == 0 {
		return nil, badSchema("body", "the body is missing")
	}
	o, err := splice.Parse(body)
	if errors.Is(err, splice.ErrNotObject) {
		return nil, badSchema("body", "the body is no object")
	}
	if err != nil {
		var at *json.SyntaxError
		pos := int64(0)
		if errors.As(err, &at) {
			pos = at.Offset
		}
		return nil, badSchema("body."+strconv.FormatInt(pos, 10), "json cannot be decoded")
	}
	return &fields{o: o}, nil
}

func (f *fields) fail(key, want string) {
	if f.err == nil {
		f.err = badSchema("body."+key, "%s: want %s", key, want)
	}
}

// get returns a member that is present and not null.
func (f *fields) get(key string) (json.RawMessage, bool) {
	v, ok := f.o.Get(key)
	return v, ok && string(v) != "null"
}

// number reads a number, or a string that holds one.
func (f *fields) number(key, want string) (float64, bool) {
	v, ok := f.get(key)
	if !ok {
		return 0, false
	}
	s := string(v)
	var q string
	if json.Unmarshal(v, &q) == nil {
		s = strings.TrimSpace(q)
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		f.fail(key, want)
		return 0, false
	}
	return x, true
}

func (f *fields) int(key string) (int, bool) {
	x, ok := f.number(key, "an integer")
	if ok && (x != float64(int64(x)) || x > 1e15 || x < -1e15) {
		f.fail(key, "an integer")
		return 0, false
	}
	return int(x), ok
}

func (f *fields) float(key string, def float64) float64 {
	if x, ok := f.number(key, "a number"); ok {
		return x
	}
	return def
}

func (f *fields) bool(key string) bool {
	v, ok := f.get(key)
	if !ok {
		return false
	}
	switch strings.Trim(string(v), `"`) {
	case "true", "1", "yes", "on":
		return true
	case "false", "0", "no", "off":
		return false
	}
	f.fail(key, "a boolean")
	return false
}

func (f *fields) string(key string) string {
	v, ok := f.get(key)
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		f.fail(key, "a string")
	}
	return s
}

// list reads a list, or one bare element of its kind.
func list[T any](f *fields, key, want string) []T {
	v, ok := f.get(key)
	if !ok {
		return nil
	}
	var one T
	if json.Unmarshal(v, &one) == nil {
		return []T{one}
	}
	var many []T
	if json.Unmarshal(v, &many) != nil {
		f.fail(key, want)
	}
	return many
}

// object reads a member that must be an object.
func (f *fields) object(key string) (*fields, bool) {
	v, ok := f.get(key)
	if !ok {
		return nil, false
	}
	o, err := splice.Parse(v)
	if err != nil {
		f.fail(key, "an object")
		return nil, false
	}
	return &fields{o: o}, true
}

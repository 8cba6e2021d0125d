package tenant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// object is a JSON object whose members stand each once.
type object map[string]any

// parse reads JSON without the leniencies of encoding/json: a member that stands twice,
// text that is no UTF-8 and anything after the value are errors. Objects become object,
// lists []any, numbers json.Number.
func parse(b []byte, r *reader) (any, bool) {
	var ignored json.RawMessage
	if err := json.Unmarshal(b, &ignored); err != nil {
		says := "is no JSON"
		var at *json.SyntaxError
		if errors.As(err, &at) {
			line := 1 + bytes.Count(b[:min(int(at.Offset), len(b))], []byte{'\n'})
			says = fmt.Sprintf("is no JSON at line %d", line)
		}
		r.bad("", says, "")
		return nil, false
	}
	if !utf8.Valid(b) {
		r.bad("", "is no UTF-8", "")
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := walk(dec, "", 0, r)
	if err != nil {
		r.bad("", err.Error(), "")
		return nil, false
	}
	return v, true
}

// maxDepth is far above what a tenants file needs.
const maxDepth = 8

var errDepth = errors.New("is nested too deeply")

// walk reads the next value, whose place is member. The text is known to be well-formed.
func walk(dec *json.Decoder, member string, depth int, r *reader) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return walkObject(dec, member, depth, r)
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := walk(dec, fmt.Sprintf("%s[%d]", member, len(list)), depth+1, r)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	return token, nil
}

func walkObject(dec *json.Decoder, member string, depth int, r *reader) (any, error) {
	o := object{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		at := join(member, name)
		v, err := walk(dec, at, depth+1, r)
		if err != nil {
			return nil, err
		}
		if _, twice := o[name]; twice {
			r.bad(at, "is given twice", "")
		}
		o[name] = v
	}
	_, err := dec.Token()
	return o, err
}

func join(member, name string) string {
	if len(name) > 32 || !plainName(name) {
		name = "?" // it may be anything, a key too
	}
	if member == "" {
		return name
	}
	return member + "." + name
}

func plainName(s string) bool {
	for _, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

// Package splice edits the top level of a JSON object as bytes.
//
// It promises that members it is not told about keep their exact bytes, numbers
// included, and their order. It refuses anything that is not one valid JSON object.
package splice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// ErrNotObject is returned for valid JSON that is not an object.
var ErrNotObject = errors.New("json value is not an object")

type member struct {
	key   string
	raw   []byte // key, colon and value as written
	value []byte
}

// Object is a parsed view over the caller's bytes, which must not change while it is in use.
type Object struct {
	members []member
}

// Parse validates src and indexes its top-level members.
func Parse(src []byte) (Object, error) {
	if !Valid(src) {
		return Object{}, fmt.Errorf("parse json: %w", syntaxError(src))
	}
	i := space(src, 0)
	if src[i] != '{' {
		return Object{}, ErrNotObject
	}
	var o Object
	if err := o.index(src, i); err != nil {
		return Object{}, err
	}
	return o, nil
}

// index reads the members of the valid object that starts at i.
func (o *Object) index(src []byte, i int) error {
	i = space(src, i+1)
	if src[i] != '}' {
		o.members = make([]member, 0, 8)
	}
	for src[i] != '}' {
		start := i
		i = str(src, i)
		key, err := unquote(src[start:i])
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		i = space(src, i)
		i = space(src, i+1) // the colon
		from := i
		i = value(src, i)
		o.members = append(o.members, member{key: key, raw: src[start:i], value: src[from:i]})
		i = space(src, i)
		if src[i] == ',' {
			i = space(src, i+1)
		}
	}
	return nil
}

// Get returns the bytes of a member's value. Of a repeated key the last one counts,
// as in the engines' own parsers.
func (o Object) Get(key string) (json.RawMessage, bool) {
	for i := len(o.members) - 1; i >= 0; i-- {
		if o.members[i].key == key {
			return o.members[i].value, true
		}
	}
	return nil, false
}

// Set is one member that Edit writes.
type Set struct {
	Key   string
	Value json.RawMessage
}

// Edit returns a new object without the members that drop names and without those that
// set replaces, followed by set in its order. drop may be nil.
func (o Object) Edit(drop func(key string) bool, set ...Set) []byte {
	size := 2
	for _, m := range o.members {
		size += len(m.raw) + 1
	}
	for _, s := range set {
		size += len(s.Key) + len(s.Value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for _, m := range o.members {
		if (drop != nil && drop(m.key)) || replaced(set, m.key) {
			continue
		}
		out = append(append(out, m.raw...), ',')
	}
	for _, s := range set {
		out = append(out, '"')
		out = append(out, s.Key...)
		out = append(out, '"', ':')
		out = append(append(out, s.Value...), ',')
	}
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, '}')
}

// With returns a view with members replaced or added, without copying the others. It shares
// the bytes of o and of the values.
func (o Object) With(set ...Set) Object {
	members := make([]member, 0, len(o.members)+len(set))
	for _, m := range o.members {
		if !replaced(set, m.key) {
			members = append(members, m)
		}
	}
	for _, s := range set {
		raw := append(append(append([]byte{'"'}, s.Key...), '"', ':'), s.Value...)
		members = append(members, member{key: s.Key, raw: raw, value: s.Value})
	}
	return Object{members}
}

func replaced(set []Set, key string) bool {
	for _, s := range set {
		if s.Key == key {
			return true
		}
	}
	return false
}

func syntaxError(src []byte) error {
	var v any
	if err := json.Unmarshal(src, &v); err != nil {
		return err
	}
	return errors.New("invalid json")
}

// String decodes a valid JSON string; ok is false for any other value.
func String(valid []byte) (s string, ok bool) {
	if len(valid) < 2 || valid[0] != '"' {
		return "", false
	}
	s, err := unquote(valid)
	return s, err == nil
}

func unquote(q []byte) (string, error) {
	if bytes.IndexByte(q, '\\') < 0 && utf8.Valid(q) {
		return string(q[1 : len(q)-1]), nil
	}
	var s string
	err := json.Unmarshal(q, &s)
	return s, err
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// All yields each member with the bytes of its value, in order, repeated ones included.
func (o Object) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, m := range o.members {
			if !yield(m.key, m.value) {
				return
			}
		}
	}
}

// Keys returns the member names in order, repeated ones included.
func (o Object) Keys() []string {
	keys := make([]string, len(o.members))
	for i, m := range o.members {
		keys[i] = m.key
	}
	return keys
}

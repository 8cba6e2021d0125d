package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Digest returns "sha256:" and the SHA-256 of the canonical JSON of v.
func Digest(v any) (string, error) {
	b, err := Canonical(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Canonical writes v as the reference's canonical JSON: keys sorted by code point, no
// spaces, only ASCII, integers in decimal, floats as their shortest round-trip decimal
// that keeps a fraction (1.0) and takes an exponent from 1e16 and below 1e-4.
//
// Go's type decides between integer and float; a json.Number counts as written, so a
// decoder with UseNumber keeps the difference. NaN and infinities are errors.
func Canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := canonical(&b, reflect.ValueOf(v)); err != nil {
		return nil, fmt.Errorf("write canonical JSON: %w", err)
	}
	return b.Bytes(), nil
}

func canonical(b *bytes.Buffer, v reflect.Value) error {
	if !v.IsValid() {
		b.WriteString("null")
		return nil
	}
	switch x := v.Interface().(type) {
	case json.Number:
		return canonicalNumber(b, x.String())
	case json.Marshaler, encoding.TextMarshaler:
		if v.Kind() != reflect.Pointer || !v.IsNil() {
			return canonicalMarshaler(b, x)
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("null")
			return nil
		}
		return canonical(b, v.Elem())
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.Float32, reflect.Float64:
		return canonicalFloat(b, v.Float())
	case reflect.String:
		canonicalString(b, v.String())
	case reflect.Slice, reflect.Array:
		return canonicalList(b, v)
	case reflect.Map:
		return canonicalMap(b, v)
	case reflect.Struct:
		return canonicalStruct(b, v)
	default:
		return fmt.Errorf("a value of kind %s has no JSON form", v.Kind())
	}
	return nil
}

// canonicalMarshaler rewrites what a type's own JSON says.
func canonicalMarshaler(b *bytes.Buffer, x any) error {
	raw, err := json.Marshal(x)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return canonical(b, reflect.ValueOf(v))
}

func canonicalNumber(b *bytes.Buffer, s string) error {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			s = "0"
		}
		b.WriteString(s)
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("number %q is out of range", s)
	}
	return canonicalFloat(b, f)
}

func canonicalFloat(b *bytes.Buffer, f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("number %v is not finite", f)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	_, exp, _ := strings.Cut(s, "e")
	if e, _ := strconv.Atoi(exp); f == 0 || e >= -4 && e < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
	}
	b.WriteString(s)
	return nil
}

func canonicalString(b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r >= 0x20 && r < 0x7f:
			b.WriteByte(byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
}

func canonicalList(b *bytes.Buffer, v reflect.Value) error {
	if v.Kind() == reflect.Slice && v.IsNil() {
		b.WriteString("null")
		return nil
	}
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := canonical(b, v.Index(i)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

// entry is one member of an object that is about to be sorted.
type entry struct {
	name  string
	value reflect.Value
}

func canonicalMap(b *bytes.Buffer, v reflect.Value) error {
	if v.IsNil() {
		b.WriteString("null")
		return nil
	}
	if v.Type().Key().Kind() != reflect.String {
		return fmt.Errorf("a map with keys of kind %s has no canonical form", v.Type().Key().Kind())
	}
	entries := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		entries = append(entries, entry{it.Key().String(), it.Value()})
	}
	return canonicalEntries(b, entries)
}

func canonicalStruct(b *bytes.Buffer, v reflect.Value) error {
	var entries []entry
	t := v.Type()
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if !t.Field(i).IsExported() || name == "-" || strings.Contains(options, "omitempty") && isEmpty(v.Field(i)) {
			continue
		}
		if name == "" {
			name = t.Field(i).Name
		}
		entries = append(entries, entry{name, v.Field(i)})
	}
	return canonicalEntries(b, entries)
}

// isEmpty follows encoding/json's omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.Array, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func canonicalEntries(b *bytes.Buffer, entries []entry) error {
	// UTF-8 sorts by code point.
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.name, y.name) })
	b.WriteByte('{')
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		if !utf8.ValidString(e.name) {
			return fmt.Errorf("key %q is not UTF-8", e.name)
		}
		canonicalString(b, e.name)
		b.WriteByte(':')
		if err := canonical(b, e.value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

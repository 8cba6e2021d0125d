// Package canonical writes JSON values in one text form and digests it: keys
// sorted by code point, no spaces, non-ASCII as \uXXXX, floats as the shortest
// decimal that reads back, in Python's style.
//
// It promises the digests of the reference implementation (attestation, launch
// and contract digests), so that both sides name the same documents alike. It
// refuses what has no single meaning: duplicate keys, invalid UTF-8, lone
// surrogates, numbers beyond a float64, NaN, trailing text, and deep nesting.
package canonical

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of a document.
const (
	MaxDepth  = 64
	MaxDigits = 4300 // of an integer; the reference's runtime has the same limit
)

// Encode returns the canonical text of a value built from nil, bool, string,
// int, int64, float64, json.Number, []any and map[string]any. A json.Number is
// an integer unless its text holds a point or an exponent.
func Encode(v any) ([]byte, error) { return appendValue(nil, v, 0) }

// Text returns the canonical text of a JSON text.
func Text(raw []byte) ([]byte, error) {
	v, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	return Encode(v)
}

// Digest returns "sha256:" and the hex SHA-256 of a value's canonical text.
func Digest(v any) (string, error) {
	b, err := Encode(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Fingerprint returns the first 16 hex digits of a value's digest.
func Fingerprint(v any) (string, error) {
	d, err := Digest(v)
	if err != nil {
		return "", err
	}
	return d[len("sha256:") : len("sha256:")+16], nil
}

func appendValue(b []byte, v any, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("encode value: nested deeper than %d", MaxDepth)
	}
	switch t := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, t), nil
	case string:
		return appendString(b, t)
	case int:
		return strconv.AppendInt(b, int64(t), 10), nil
	case int64:
		return strconv.AppendInt(b, t, 10), nil
	case float64:
		return appendFloat(b, t)
	case json.Number:
		return appendNumber(b, string(t))
	case []any:
		return appendArray(b, t, depth)
	case map[string]any:
		return appendObject(b, t, depth)
	}
	return nil, fmt.Errorf("encode value: no canonical form for a %T", v)
}

func appendArray(b []byte, list []any, depth int) (_ []byte, err error) {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, e, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, m map[string]any, depth int) (_ []byte, err error) {
	b = append(b, '{')
	// Byte order of UTF-8 is code point order.
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendString(b, k); err != nil {
			return nil, err
		}
		if b, err = appendValue(append(b, ':'), m[k], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendNumber(b []byte, text string) ([]byte, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("encode number: %w", err)
		}
		return appendFloat(b, f)
	}
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(digits) > MaxDigits || strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		return nil, fmt.Errorf("encode number: not an integer of at most %d digits", MaxDigits)
	}
	if digits == "0" {
		return append(b, '0'), nil // there is no negative zero among integers
	}
	return append(b, text...), nil
}

// appendFloat writes the shortest digits that read back; with an exponent of at
// least two digits from 1e16 and below 1e-4, otherwise with a decimal point.
func appendFloat(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("encode number: not finite")
	}
	if a := math.Abs(f); a != 0 && (a >= 1e16 || a < 1e-4) {
		return strconv.AppendFloat(b, f, 'e', -1, 64), nil
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return append(b, text...), nil
}

var shortEscapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`,
}

func appendString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("encode string: not UTF-8")
	}
	b = append(b, '"')
	for _, r := range s {
		switch short := shortEscapes[r]; {
		case short != "":
			b = append(b, short...)
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		}
	}
	return append(b, '"'), nil
}

package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Parse reads one JSON text into the values that Encode takes; numbers stay
// json.Number. It refuses what the package comment lists. The caller bounds the length.
func Parse(raw []byte) (any, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("read JSON: not UTF-8")
	}
	if err := checkEscapes(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := parseValue(dec, 0)
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read JSON: text after the value")
	}
	return v, nil
}

// ParseObject reads a JSON text that must be an object.
func ParseObject(raw []byte) (map[string]any, error) {
	v, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("read JSON: not an object")
	}
	return m, nil
}

func parseValue(dec *json.Decoder, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		return parseObject(dec, depth)
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	return tok, nil
}

func parseObject(dec *json.Decoder, depth int) (any, error) {
	m := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, ok := tok.(string)
		if !ok {
			return nil, errors.New("a key is not a string")
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("duplicate key %q", key)
		}
		if m[key], err = parseValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return m, err
}

// checkEscapes refuses lone surrogates, which the decoder would replace silently.
// A backslash occurs in strings only, so the text needs no other parsing.
func checkEscapes(raw []byte) error {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		r, ok := escaped(raw[i:])
		if !ok {
			i++ // a short escape; the decoder judges it
			continue
		}
		i += 5
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escaped(raw[i+1:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return errors.New("read JSON: lone surrogate")
		}
		i += 6
	}
	return nil
}

// escaped reads \uXXXX at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

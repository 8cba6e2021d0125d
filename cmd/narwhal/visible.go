package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible is where all text for people goes, and all JSON. Names of a fleet file and words
// of another machine may hold anything: what would steer a terminal, or hide or reorder text
// on it, is written as its JSON escape, which is the same value to a reader of JSON.
type visible struct{ w io.Writer }

// Write reports the length of b, though what was written may be longer.
func (v visible) Write(b []byte) (int, error) {
	if _, err := v.w.Write(shown(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// steers reports what a terminal acts on instead of showing it.
func steers(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

func shown(b []byte) []byte {
	if utf8.Valid(b) && !bytes.ContainsFunc(b, steers) {
		return b
	}
	var out bytes.Buffer
	for _, r := range string(b) { // bytes that are no UTF-8 become U+FFFD
		switch {
		case !steers(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}

// oneLine keeps foreign text from adding lines that look like ours.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// bare is the stream below, for what is written as it is.
func bare(w io.Writer) io.Writer {
	if v, ok := w.(visible); ok {
		return v.w
	}
	return w
}

// fileOf is the file that a stream writes to, nil for any other.
func fileOf(w io.Writer) *os.File {
	f, _ := bare(w).(*os.File)
	return f
}

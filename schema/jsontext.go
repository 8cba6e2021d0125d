package schema

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func (r *jsonReader) str() string {
	r.off++
	start := r.off
	for r.off < len(r.data) { // the common case has no escapes
		c := r.data[r.off]
		if c == '"' {
			s := r.data[start:r.off]
			if !utf8.Valid(s) {
				r.off = start
				r.fail("text is not valid UTF-8", "save the file as UTF-8")
			}
			r.off++
			return string(s)
		}
		if c == '\\' || c < 0x20 {
			break
		}
		r.off++
	}
	b := append([]byte(nil), r.data[start:r.off]...)
	for {
		switch c := r.peek(); {
		case r.off >= len(r.data):
			r.off = start - 1
			r.fail("a quoted text has no end", "")
		case c == '"':
			if !utf8.Valid(b) {
				r.off = start
				r.fail("text is not valid UTF-8", "save the file as UTF-8")
			}
			r.off++
			return string(b)
		case c == '\\':
			b = r.escape(b)
		case c < 0x20:
			r.fail(r.here()+" inside quoted text", `write it as an escape such as \n`)
		default:
			b = append(b, c)
			r.off++
		}
	}
}

const escapes = `"\/bfnrt`
const escaped = "\"\\/\b\f\n\r\t"

func (r *jsonReader) escape(b []byte) []byte {
	r.off++
	c := r.peek()
	if i := strings.IndexByte(escapes, c); i >= 0 {
		r.off++
		return append(b, escaped[i])
	}
	if c != 'u' {
		r.fail(r.here()+" after a backslash", "")
	}
	u := r.hex4()
	if utf16.IsSurrogate(u) {
		if r.peek() != '\\' || r.off+1 >= len(r.data) || r.data[r.off+1] != 'u' {
			r.fail("half of a surrogate pair stands alone", "")
		}
		r.off++
		u = utf16.DecodeRune(u, r.hex4())
		if u == utf8.RuneError {
			r.fail("half of a surrogate pair stands alone", "")
		}
	}
	return utf8.AppendRune(b, u)
}

// hex4 reads uXXXX.
func (r *jsonReader) hex4() rune {
	r.off++
	var u rune
	for range 4 {
		i := strings.IndexByte("0123456789abcdef", r.peek()|0x20)
		if r.off >= len(r.data) || i < 0 || r.peek() < '0' {
			r.fail(r.here()+` where one of four hexadecimal digits is wanted`, "")
		}
		u = u<<4 | rune(i)
		r.off++
	}
	return u
}

package redact

import (
	"cmp"
	"slices"
	"strings"
)

// span is a part of a text that holds a secret.
type span struct {
	from, to int
	value    string // what is hashed; "" = the text itself
}

// cut replaces the spans of s. Overlapping ones become one.
func (r *Redactor) cut(s string, spans []span) (string, int) {
	if len(spans) == 0 {
		return s, 0
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var b strings.Builder
	at, n := 0, 0
	for i := 0; i < len(spans); {
		sp := spans[i]
		for i++; i < len(spans) && spans[i].from < sp.to; i++ {
			if spans[i].to > sp.to {
				sp.to, sp.value = spans[i].to, ""
			}
		}
		if sp.value == "" {
			sp.value = s[sp.from:sp.to]
		}
		b.WriteString(s[at:sp.from])
		b.WriteString(r.placeholder(sp.value))
		at = sp.to
		n++
	}
	b.WriteString(s[at:])
	return b.String(), n
}

// stripMarks returns s without placeholders.
func stripMarks(s string) string {
	if !strings.Contains(s, mark) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		if isMark(s) {
			s = s[markLen:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}

// isMark reports whether s begins with a placeholder.
func isMark(s string) bool {
	if len(s) < markLen || !strings.HasPrefix(s, mark) || s[markLen-1] != ']' {
		return false
	}
	for _, c := range s[len(mark) : markLen-1] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Package exposition reads parts of the Prometheus text format.
//
// It promises not to fail on foreign bytes, and it judges no more than it returns.
package exposition

import "strings"

// LabelValue reads the quoted value at the beginning of s and returns what follows it; ok is
// false without a value or without its end.
func LabelValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", false
	}
	s = s[1:]
	end := strings.IndexAny(s, `"\`)
	if end < 0 {
		return "", "", false
	}
	if s[end] == '"' {
		return s[:end], s[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			if s[i] == 'n' {
				b.WriteByte('\n')
			} else {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

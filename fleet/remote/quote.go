package remote

import "strings"

// Quote returns words as one POSIX shell command line that yields exactly these words.
// A NUL cannot be expressed in a command line; callers refuse it before.
func Quote(words ...string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		quoteInto(&b, w)
	}
	return b.String()
}

func quoteInto(b *strings.Builder, w string) {
	if w != "" && strings.IndexFunc(w, special) < 0 {
		b.WriteString(w)
		return
	}
	b.WriteByte('\'')
	b.WriteString(strings.ReplaceAll(w, "'", `'\''`))
	b.WriteByte('\'')
}

// special reports whether a rune might mean something to a shell. '=' and '~' do in some places.
func special(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("@%+:,./-_", r)
}

package redact

import "strings"

// named looks for the value of a sensitive name that stands between i and j: KEY=VALUE,
// name: value, "name": "value", --flag value, also with escaped quotes.
func (sc *scanner) named(i, j int, c class, query bool) int {
	s := sc.s
	k := sc.closing(j)
	sep := sc.skip(k, " \t")
	flag := isFlag(s, i) && sep > j && c != weak
	switch {
	case sep < len(s) && s[sep] == '=':
		k = sep + 1
		if k < len(s) && (s[k] == '>' || s[k] == '=') {
			k++
		}
	case sep < len(s) && s[sep] == ':' && !strings.HasPrefix(s[sep:], "::") && !isFile(s, i, j):
		k = sep + 1
		if k < len(s) && s[k] == '=' {
			k++
		}
	case flag && s[sep-1] != '\n' && sep < len(s) && s[sep] != '-':
		return sc.value(i, sep, c, false, ' ')
	default:
		return j
	}
	return sc.value(i, sc.skip(k, " \t"), c, query, s[sep])
}

// closing steps over the quote that ends a name, and a bracket after it.
func (sc *scanner) closing(j int) int {
	k := sc.skip(j, `\`)
	if k < len(sc.s) && strings.IndexByte("\"'`", sc.s[k]) >= 0 {
		k++
		if k < len(sc.s) && sc.s[k] == ']' {
			k++
		}
		return k
	}
	return j
}

func isFlag(s string, i int) bool {
	if i == 0 || s[i-1] != '-' {
		return false
	}
	for i > 0 && s[i-1] == '-' {
		i--
	}
	return i == 0 || !isAlnum(s[i-1])
}

// isFile reports whether a word before a colon is the name of a file, as in
// "open /etc/a.key: no such file".
func isFile(s string, i, j int) bool {
	dot := strings.LastIndexByte(s[i:j], '.')
	return dot > 0 && (i > 0 && s[i-1] == '/' || strings.EqualFold(s[i+dot+1:j], "key"))
}

// value cuts the value at i of the name at word.
func (sc *scanner) value(word, i int, c class, query bool, sep byte) int {
	s := sc.s
	if i >= len(s) {
		return i
	}
	if isMark(s[i:]) {
		return sc.bare(word, i, c, query, sep)
	}
	if s[i] == '[' || s[i] == '(' || s[i] == '{' && c != content {
		if k := sc.skip(i+1, " \t\r\n["); sc.quoteAt(k) > 0 {
			return sc.list(k, c)
		}
		if s[i] == '{' {
			return i
		}
	}
	if sc.quoteAt(i) > 0 {
		from, to, next := sc.quoted(i)
		sc.judge(from, to, c)
		return next
	}
	if c == content {
		return i
	}
	return sc.bare(word, i, c, query, sep)
}

func (sc *scanner) judge(from, to int, c class) {
	if a, b := secretOf(sc.s[from:to], c); b > 0 {
		sc.add(from+a, from+b)
	}
}

// list cuts the quoted items of a list.
func (sc *scanner) list(i int, c class) int {
	for sc.quoteAt(i) > 0 {
		from, to, next := sc.quoted(i)
		sc.judge(from, to, c)
		k := sc.skip(next, " \t\r\n")
		if k >= len(sc.s) || sc.s[k] != ',' {
			return next
		}
		i = sc.skip(k+1, " \t\r\n")
	}
	return i
}

// quoteAt returns the length of an opening quote at i: a letter that marks the kind of
// string, backslashes, and the quote itself; 0 for none.
func (sc *scanner) quoteAt(i int) int {
	k := i
	if k < len(sc.s) && strings.IndexByte("bBuUrRfF", sc.s[k]) >= 0 {
		k++
	}
	k = sc.skip(k, `\`)
	if k < len(sc.s) && strings.IndexByte("\"'`", sc.s[k]) >= 0 {
		return k + 1 - i
	}
	return 0
}

// quoted returns the inside of the quoted string at i and where it ends. A string that is
// not closed on its line ends there.
func (sc *scanner) quoted(i int) (from, to, next int) {
	s := sc.s
	n := sc.quoteAt(i)
	q := s[i+n-1]
	escapes := strings.Count(s[i:i+n], `\`)
	from = i + n
	for k := from; k < len(s) && s[k] != '\n'; k++ {
		if s[k] != q {
			continue
		}
		run := 0
		for k-run > from && s[k-run-1] == '\\' {
			run++
		}
		// A quote of the same level is escaped as often as the opening one.
		if run == escapes || escapes == 0 && run%2 == 0 || run < escapes {
			return from, k - run*min(1, escapes), k + 1
		}
	}
	end := len(s)
	if k := strings.IndexByte(s[from:], '\n'); k >= 0 {
		end = from + k
	}
	return from, end, end
}

// bare cuts a value without quotes. How far it goes depends on where it stands: to the end
// of the line, to the next parameter of a query, or to the next blank.
func (sc *scanner) bare(word, i int, c class, query bool, sep byte) int {
	s := sc.s
	stop := " \t\r\n\"'`<>"
	switch {
	case query:
		stop += "&#"
	case sep == '=' && sc.leaf && word == 0:
		stop = "\r\n"
	case c == header || c == strict && sep == ':' && sc.startsLine(word):
		stop = "\r\n\"'`"
	case sep == ':':
		stop += ",;)]}&"
	}
	end := i
	for end < len(s) {
		if isMark(s[end:]) {
			end += markLen
			continue
		}
		if strings.IndexByte(stop, s[end]) >= 0 || s[end] == '\\' && sc.skip(end, `\`) < len(s) && strings.IndexByte("\"'`nrt", s[sc.skip(end, `\`)]) >= 0 {
			break
		}
		end++
	}
	to := i + len(strings.TrimRight(s[i:end], " \t,;:.)]}"))
	if strings.HasSuffix(s[i:min(to+1, len(s))], "]") && isMark(s[max(i, to+1-markLen):]) {
		to++
	}
	sc.judge(i, to, c)
	return end
}

// startsLine reports whether only blanks, a dash or "export" stand before i on its line.
func (sc *scanner) startsLine(i int) bool {
	from := strings.LastIndexByte(sc.s[:i], '\n') + 1
	return strings.Trim(strings.TrimSuffix(strings.TrimSpace(sc.s[from:i]), "export"), " \t-") == ""
}

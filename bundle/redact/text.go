package redact

import "strings"

// scanner finds secrets in free text, one word at a time.
type scanner struct {
	s       string
	content bool
	leaf    bool // the text is one string of a document, such as an item of an environment
	spans   []span
}

// text redacts what is not JSON.
func (r *Redactor) text(s string, content, leaf bool) (string, int) {
	if s == "" {
		return s, 0
	}
	sc := &scanner{s: s, content: content, leaf: leaf}
	sc.pem()
	for i := 0; i < len(s); {
		if !isAlnum(s[i]) && s[i] != '_' {
			i++
			continue
		}
		j := i
		for j < len(s) && isName(s[j]) {
			j++
		}
		i = max(j, sc.word(i, j))
	}
	return r.cut(s, append(sc.spans, r.known(s)...))
}

func isName(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

func (sc *scanner) add(from, to int) {
	if from < to {
		sc.spans = append(sc.spans, span{from: from, to: to})
	}
}

// word looks at the word between i and j and returns where to go on.
func (sc *scanner) word(i, j int) int {
	w := sc.s[i:j]
	switch {
	case strings.HasPrefix(sc.s[j:], "://"):
		return sc.userInfo(j + 3)
	case strings.EqualFold(w, "bearer"), strings.EqualFold(w, "basic"):
		return sc.scheme(w, j)
	case len(w) >= 16 && isCredential(strings.TrimRight(w, ".")):
		sc.add(i, i+len(strings.TrimRight(w, ".")))
		return j
	}
	c := classify(w)
	query := i > 0 && (sc.s[i-1] == '?' || sc.s[i-1] == '&')
	if c == open && query && signatures[strings.ToLower(w)] {
		c = key
	}
	if c == open || c == content && !sc.content {
		return j
	}
	return sc.named(i, j, c, query)
}

// signatures are names of credentials in the query of a signed URL.
var signatures = set("sig signature x-amz-signature x-goog-signature code assertion")

// userInfo cuts what stands before an @ in the authority of a URL.
func (sc *scanner) userInfo(i int) int {
	end := i
	for end < len(sc.s) && strings.IndexByte("/?# \t\r\n\"'<>`\\", sc.s[end]) < 0 {
		end++
	}
	at := strings.LastIndexByte(sc.s[i:end], '@')
	if at <= 0 || strings.Trim(stripMarks(sc.s[i:i+at]), ":@") == "" {
		return i
	}
	sc.add(i, i+at)
	return i + at
}

// scheme cuts the credentials after Bearer or Basic.
func (sc *scanner) scheme(w string, j int) int {
	i := sc.skip(j, " \t")
	if i == j {
		return j
	}
	end := i
	for end < len(sc.s) && (isName(sc.s[end]) || strings.IndexByte("~+/=", sc.s[end]) >= 0) {
		end++
	}
	v := strings.TrimRight(sc.s[i:end], ".-")
	if len(v) < 6 || spoken[strings.ToLower(v)] || strings.EqualFold(w, "basic") && !strings.ContainsAny(v, "0123456789=ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return j
	}
	sc.add(i, i+len(v))
	return i + len(v)
}

// spoken follow the word Bearer in a sentence.
var spoken = set("token tokens auth authentication authorization scheme header headers credential credentials required missing invalid")

func (sc *scanner) skip(i int, chars string) int {
	for i < len(sc.s) && strings.IndexByte(chars, sc.s[i]) >= 0 {
		i++
	}
	return i
}

// pem cuts private key blocks. A block whose end is not there is cut for as long as a
// key can be.
func (sc *scanner) pem() {
	const begin, private, dashes, most = "-----BEGIN ", "PRIVATE KEY", "-----", 16 << 10
	for at := 0; ; {
		i := strings.Index(sc.s[at:], begin)
		if i < 0 {
			break
		}
		from := at + i
		at = from + len(begin)
		head := sc.s[at:min(len(sc.s), at+48)]
		k := strings.Index(head, private)
		if k < 0 || strings.ContainsAny(head[:k], "\n-") {
			continue
		}
		to := min(len(sc.s), from+most)
		if e := strings.Index(sc.s[at:], "-----END "); e >= 0 && at+e < to {
			tail := at + e + len("-----END ")
			if d := strings.Index(sc.s[tail:min(len(sc.s), tail+64)], dashes); d >= 0 {
				to = tail + d + len(dashes)
			}
		}
		sc.add(from, len(strings.TrimRight(sc.s[:to], "\r\n")))
		at = to
	}
	sc.beheaded()
}

// beheaded cuts the rest of a private key whose beginning is not in the text.
func (sc *scanner) beheaded() {
	for at := 0; ; {
		i := strings.Index(sc.s[at:], "-----END ")
		if i < 0 {
			return
		}
		end := at + i
		at = end + len("-----END ")
		head := sc.s[at:min(len(sc.s), at+48)]
		k := strings.Index(head, "PRIVATE KEY")
		if k < 0 || strings.ContainsAny(head[:k], "\n-") || sc.covered(end) {
			continue
		}
		from := end
		for from > 0 && (isAlnum(sc.s[from-1]) || strings.IndexByte("+/=\r\n\\", sc.s[from-1]) >= 0) {
			from--
		}
		from = sc.skip(from, "\r\n")
		sc.add(from, end)
	}
}

func (sc *scanner) covered(i int) bool {
	for _, sp := range sc.spans {
		if sp.from <= i && i < sp.to {
			return true
		}
	}
	return false
}

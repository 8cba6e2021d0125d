package redact

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// edit replaces a token of a document.
type edit struct {
	from, to int
	text     string
	n        int
}

// walker goes through a valid JSON document and notes what is to be replaced. All other
// bytes stay as they are.
type walker struct {
	r       *Redactor
	b       []byte
	i       int
	content bool
	nest    int
	edits   []edit
}

// document redacts valid JSON.
func (r *Redactor) document(b []byte, content bool, nest int) ([]byte, int) {
	w := &walker{r: r, b: b, content: content, nest: nest}
	w.value(open)
	if len(w.edits) == 0 {
		return b, 0
	}
	slices.SortStableFunc(w.edits, func(x, y edit) int { return cmp.Compare(x.from, y.from) })
	var out []byte
	at, n := 0, 0
	for i, e := range w.edits {
		if e.from < at || i+1 < len(w.edits) && w.edits[i+1].from == e.from {
			continue // inside what was replaced whole, or replaced again by a later judgement
		}
		out = append(append(out, b[at:e.from]...), e.text...)
		at = e.to
		n += e.n
	}
	return append(out, b[at:]...), n
}

// value walks one value whose name has a class. It returns the value's extent, and its text
// where it is a string.
func (w *walker) value(c class) (from, to int, text string) {
	w.space()
	from = w.i
	switch w.b[w.i] {
	case '{':
		w.object(c)
	case '[':
		w.list(c)
	case '"':
		text = w.str()
		w.leaf(from, w.i, text, c)
	default:
		w.scalar(c)
	}
	if c == content && w.content && w.i-from > 2 && (w.b[from] == '{' || w.b[from] == '[') {
		w.replace(from, w.i, string(w.b[from:w.i]))
	}
	return from, w.i, text
}

func (w *walker) object(c class) {
	w.i++ // {
	var name string
	var from, to int
	var held string
	for w.space(); w.b[w.i] != '}'; w.space() {
		if w.b[w.i] == ',' {
			w.i++
			w.space()
		}
		at := w.i
		k := w.str()
		w.name(at, w.i, k)
		w.space()
		w.i++ // :
		own := classify(k)
		if own == open && c != open && !descriptive[strings.ToLower(k)] {
			own = c // a member of what is secret as a whole
		}
		vfrom, vto, text := w.value(own)
		switch strings.ToLower(k) {
		case "name", "key", "variable", "header":
			name = text
		case "value", "val":
			from, to, held = vfrom, vto, text
		}
	}
	w.i++ // }
	if to > 0 && held != "" && Sensitive(name) {
		w.secret(from, to, held, classify(name))
	}
}

func (w *walker) list(c class) {
	w.i++ // [
	last, first, n := "", "", 0
	for w.space(); w.b[w.i] != ']'; w.space() {
		if w.b[w.i] == ',' {
			w.i++
		}
		own := c
		if flag := strings.TrimLeft(last, "-"); flag != last && own == open && Sensitive(flag) {
			own = classify(flag) // the argument after a flag
		}
		from, to, text := w.value(own)
		if n == 1 && classify(first) == header && text != "" {
			w.secret(from, to, text, header) // a header as a pair
		}
		if n == 0 {
			first = text
		}
		last = text
		n++
	}
	w.i++ // ]
}

// leaf judges a string.
func (w *walker) leaf(from, to int, text string, c class) {
	if c != open && (c != content || w.content) && w.secret(from, to, text, c) {
		return
	}
	out, n := w.r.inner(text, w.content, w.nest)
	if n > 0 {
		w.edits = append(w.edits, edit{from, to, quote(out), n})
	}
}

// secret replaces the secret part of a string; false when it holds none.
func (w *walker) secret(from, to int, text string, c class) bool {
	a, b := secretOf(text, c)
	if b == 0 {
		return false
	}
	// What is left may hold a literal.
	head, n := w.r.text(text[:a], w.content, false)
	tail, m := w.r.text(text[b:], w.content, false)
	w.edits = append(w.edits, edit{from, to, quote(head + w.r.placeholder(text[a:b]) + tail), n + m + 1})
	return true
}

func (w *walker) replace(from, to int, value string) {
	if strings.TrimSpace(value) != "" {
		w.edits = append(w.edits, edit{from, to, quote(w.r.placeholder(value)), 1})
	}
}

// name redacts the name of a member.
func (w *walker) name(from, to int, text string) {
	if out, n := w.r.text(text, false, false); n > 0 {
		w.edits = append(w.edits, edit{from, to, quote(out), n})
	}
}

// scalar judges a number; true, false and null are no secrets.
func (w *walker) scalar(c class) {
	from := w.i
	for w.i < len(w.b) && strings.IndexByte(",]} \t\r\n", w.b[w.i]) < 0 {
		w.i++
	}
	v := string(w.b[from:w.i])
	if v == "true" || v == "false" || v == "null" {
		return
	}
	if known := w.r.known(v); len(known) > 0 {
		w.replace(from, w.i, known[0].value)
	} else if c == strict && len(v) >= MinLiteral {
		w.replace(from, w.i, v)
	}
}

// str reads a string token and returns its text.
func (w *walker) str() string {
	from := w.i
	for w.i++; w.b[w.i] != '"'; w.i++ {
		if w.b[w.i] == '\\' {
			w.i++
		}
	}
	w.i++
	var s string
	_ = json.Unmarshal(w.b[from:w.i], &s) // the document is valid
	return s
}

func (w *walker) space() {
	for w.i < len(w.b) && strings.IndexByte(" \t\r\n", w.b[w.i]) >= 0 {
		w.i++
	}
}

// inner redacts the text of a string, which may be a JSON document itself.
func (r *Redactor) inner(s string, content bool, nest int) (string, int) {
	t := strings.TrimLeft(s, " \t\r\n")
	if t != "" && (t[0] == '{' || t[0] == '[') && nest < maxNest && json.Valid([]byte(s)) {
		out, n := r.document([]byte(s), content, nest+1)
		return string(out), n
	}
	return r.text(s, content, true)
}

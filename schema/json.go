package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of one source.
const (
	maxBytes = 16 << 20
	maxDepth = 64
	maxNodes = 2_000_000
)

// jsonReader is a strict JSON parser that keeps places and reads on after
// a value that JSON lacks (NaN, Infinity), so that all of them are reported.
type jsonReader struct {
	src   int
	data  []byte
	off   int
	nodes int
	path  trail
	rep   *report
}

// syntaxFault ends the parse of one source.
type syntaxFault struct{ fault }

func parseJSON(src int, data []byte, rep *report) (n *node) {
	r := &jsonReader{src: src, data: data, rep: rep}
	defer func() {
		if e := recover(); e != nil {
			s, ok := e.(syntaxFault)
			if !ok {
				panic(e)
			}
			rep.add(s.fault)
			n = nil
		}
	}()
	if strings.HasPrefix(string(data[:min(3, len(data))]), "\ufeff") {
		r.fail("the file begins with a byte order mark", "save the file as UTF-8 without one")
	}
	r.space()
	if r.off == len(data) {
		r.fail("the file is empty", "")
	}
	n = r.value(0)
	r.space()
	if r.off < len(data) {
		r.fail(fmt.Sprintf("%s after the end of the document", r.here()), "a file holds one document")
	}
	return n
}

func (r *jsonReader) fail(says, hint string) {
	p := r.pos()
	panic(syntaxFault{fault{rule: "syntax", path: r.path, pos: &p, says: says, hint: hint}})
}

func (r *jsonReader) pos() pos { return pos{src: r.src, off: r.off} }

// here names the next character.
func (r *jsonReader) here() string {
	if r.off >= len(r.data) {
		return "end of file"
	}
	c, _ := utf8.DecodeRune(r.data[r.off:])
	return fmt.Sprintf("character %q", c)
}

func (r *jsonReader) space() {
	for r.off < len(r.data) {
		switch r.data[r.off] {
		case ' ', '\t', '\n', '\r':
			r.off++
		case '/', '#':
			r.fail("JSON has no comments", `put the remark under a key that begins with "_", or use YAML or CUE`)
		default:
			return
		}
	}
}

func (r *jsonReader) peek() byte {
	if r.off < len(r.data) {
		return r.data[r.off]
	}
	return 0
}

func (r *jsonReader) value(depth int) *node {
	if depth > maxDepth {
		r.fail(fmt.Sprintf("values are nested more than %d levels deep", maxDepth), "")
	}
	if r.nodes++; r.nodes > maxNodes {
		r.fail(fmt.Sprintf("the document has more than %d values", maxNodes), "")
	}
	n := &node{pos: r.pos()}
	switch c := r.peek(); {
	case c == '{':
		r.object(n, depth)
	case c == '[':
		r.array(n, depth)
	case c == '"':
		n.kind, n.text = kindString, r.str()
	case c == '-' || c >= '0' && c <= '9':
		r.number(n)
	default:
		r.word(n)
	}
	return n
}

func (r *jsonReader) object(n *node, depth int) {
	n.kind = kindObject
	r.off++
	r.space()
	if r.peek() == '}' {
		r.off++
		return
	}
	for {
		r.space()
		if r.peek() != '"' {
			hint := ""
			if r.peek() == '}' {
				hint = "remove the comma before it"
			}
			r.fail(r.here()+" where a quoted key is wanted", hint)
		}
		f := field{key: r.pos(), name: r.str()}
		r.space()
		if r.peek() != ':' {
			r.fail(fmt.Sprintf("%s after the key %s, want a colon", r.here(), quote(f.name)), "")
		}
		r.off++
		r.space()
		r.path = append(r.path, key(f.name))
		f.value = r.value(depth + 1)
		addField(r.rep, n, f, r.path)
		r.path = r.path[:len(r.path)-1]
		r.space()
		if r.peek() == '}' {
			r.off++
			return
		}
		if r.peek() != ',' {
			r.fail(r.here()+" inside an object, want a comma or }", "")
		}
		r.off++
	}
}

// addField adds a member; a repeated key is reported and the last one counts.
func addField(rep *report, n *node, f field, p trail) {
	old := n.member(f.name)
	if old == nil {
		n.append(f)
		return
	}
	if !strings.HasPrefix(f.name, "_") {
		line, _ := rep.sources[old.key.src].locate(old.key)
		rep.add(fault{rule: "duplicate-key", path: p.add(), pos: &f.key,
			says: fmt.Sprintf("the key is given twice; line %d holds the first, the last one counts", line), hint: "remove one of the two"})
	}
	*old = f
}

func (r *jsonReader) array(n *node, depth int) {
	n.kind = kindArray
	r.off++
	r.space()
	if r.peek() == ']' {
		r.off++
		return
	}
	for {
		r.space()
		r.path = append(r.path, at(len(n.items)))
		n.items = append(n.items, r.value(depth+1))
		r.path = r.path[:len(r.path)-1]
		r.space()
		if r.peek() == ']' {
			r.off++
			return
		}
		if r.peek() != ',' {
			r.fail(r.here()+" inside a list, want a comma or ]", "")
		}
		r.off++
	}
}

// word reads true, false and null, and reports the number names of other languages.
func (r *jsonReader) word(n *node) {
	start := r.off
	for r.off < len(r.data) && isWord(r.data[r.off]) {
		r.off++
	}
	switch w := string(r.data[start:r.off]); w {
	case "true", "false":
		n.kind, n.bool = kindBool, w == "true"
	case "null":
		n.kind = kindNull
	case "NaN", "Infinity":
		r.notFinite(n, w)
	default:
		r.off = start
		r.fail(r.here()+" where a value is wanted", "")
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

func (r *jsonReader) notFinite(n *node, text string) {
	n.kind = kindBad
	r.rep.add(fault{rule: "number-finite", path: r.path.add(), pos: &n.pos, got: clip(text), want: "a finite number"})
}

func (r *jsonReader) digits() bool {
	start := r.off
	for c := r.peek(); c >= '0' && c <= '9'; c = r.peek() {
		r.off++
	}
	return r.off > start
}

func (r *jsonReader) number(n *node) {
	start := r.off
	n.kind = kindInt
	if r.peek() == '-' {
		r.off++
		if strings.HasPrefix(string(r.data[r.off:min(r.off+8, len(r.data))]), "Infinity") {
			r.off += len("Infinity")
			r.notFinite(n, "-Infinity")
			return
		}
	}
	zero := r.peek() == '0'
	if !r.digits() {
		r.fail(r.here()+" where a digit is wanted", "")
	}
	if zero && r.data[r.off-1] != '0' || zero && r.off-start > 2 {
		r.off = start
		r.fail("a number has a leading zero", "write it without")
	}
	if r.peek() == '.' {
		n.kind = kindFloat
		r.off++
		if !r.digits() {
			r.fail(r.here()+" where a digit is wanted", "")
		}
	}
	if c := r.peek(); c == 'e' || c == 'E' {
		n.kind = kindFloat
		r.off++
		if c := r.peek(); c == '+' || c == '-' {
			r.off++
		}
		if !r.digits() {
			r.fail(r.here()+" where a digit is wanted", "")
		}
	}
	n.text = string(r.data[start:r.off])
	if !finite(n.text) {
		r.notFinite(n, n.text)
	}
}

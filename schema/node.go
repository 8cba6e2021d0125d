package schema

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a node.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindArray
	kindObject
	kindBad  // a value that was already reported, such as NaN
	kindOpen // a CUE constraint without a value
)

// pos is a place in a source. Formats whose parser counts lines set line and column;
// the others set the byte offset, and the line is counted when it is asked for.
type pos struct {
	src       int
	off       int
	line, col int
}

// node is one value of a document with its place.
type node struct {
	kind   kind
	pos    pos
	text   string // of a string, or the literal of a number
	raw    string // what the user wrote, when a reference was replaced
	bool   bool
	fields []field
	items  []*node
	index  map[string]int // of long objects, built on demand
}

// field is one member of an object.
type field struct {
	name  string
	key   pos
	value *node
}

// get returns the member of that name, or nil.
func (n *node) get(name string) *node {
	if f := n.member(name); f != nil {
		return f.value
	}
	return nil
}

// indexFrom is the number of members from which an object keeps an index.
const indexFrom = 16

func (n *node) member(name string) *field {
	if n == nil {
		return nil
	}
	if len(n.fields) < indexFrom {
		for i := range n.fields {
			if n.fields[i].name == name {
				return &n.fields[i]
			}
		}
		return nil
	}
	if n.index == nil {
		n.index = make(map[string]int, len(n.fields))
		for i := range n.fields {
			n.index[n.fields[i].name] = i
		}
	}
	if i, ok := n.index[name]; ok {
		return &n.fields[i]
	}
	return nil
}

// append adds a member whose name is new. Whoever changes fields otherwise drops the index.
func (n *node) append(f field) {
	if n.index != nil {
		n.index[f.name] = len(n.fields)
	}
	n.fields = append(n.fields, f)
}

// set replaces or adds a member.
func (n *node) set(f field) {
	if m := n.member(f.name); m != nil {
		*m = f
		return
	}
	n.append(f)
}

// seg is one step of a path: a member's name, or an index when name is empty and index ≥ 0.
type seg struct {
	name  string
	index int
}

func key(name string) seg { return seg{name, -1} }
func at(i int) seg        { return seg{"", i} }

// path leads from the top of a document to a value.
type trail []seg

func (p trail) add(s ...seg) trail {
	return append(p[:len(p):len(p)], s...)
}

// String writes names that need no quotes plainly: deploy.hosts.alpha-1.port, engines[0].url.
func (p trail) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case !plainName(s.name):
			b.WriteString("[" + strconv.QuoteToASCII(clip(s.name)) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

func plainName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return false
		}
	}
	return s != "" && len(s) <= clipAt
}

// parsePath reads what path.String writes.
func parsePath(s string) (trail, bool) {
	var p trail
	for s != "" {
		if s[0] != '[' {
			s = strings.TrimPrefix(s, ".")
			end := strings.IndexAny(s, ".[")
			if end < 0 {
				end = len(s)
			}
			if end == 0 {
				return nil, false
			}
			p, s = append(p, key(s[:end])), s[end:]
			continue
		}
		if q, err := strconv.QuotedPrefix(s[1:]); err == nil {
			name, _ := strconv.Unquote(q)
			rest, ok := strings.CutPrefix(s[1+len(q):], "]")
			if !ok {
				return nil, false
			}
			p, s = append(p, key(name)), rest
			continue
		}
		digits, rest, ok := strings.Cut(s[1:], "]")
		i, err := strconv.Atoi(digits)
		if !ok || err != nil || i < 0 {
			return nil, false
		}
		p, s = append(p, at(i)), rest
	}
	return p, true
}

// find walks a path. It returns the value, or the deepest value that exists on the way and false.
func (n *node) find(p trail) (*node, bool) {
	for _, s := range p {
		var next *node
		if s.index >= 0 {
			if n.kind == kindArray && s.index < len(n.items) {
				next = n.items[s.index]
			}
		} else if n.kind == kindObject {
			next = n.get(s.name)
		}
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// source is one input with the index of its lines.
type source struct {
	name  string
	data  []byte
	lines []int // offsets of line starts, built on demand
}

// locate returns line and column, both from 1; columns count code points.
func (s *source) locate(p pos) (line, col int) {
	if p.line > 0 {
		return p.line, p.col
	}
	if s.lines == nil {
		s.lines = []int{0}
		for i, c := range s.data {
			if c == '\n' {
				s.lines = append(s.lines, i+1)
			}
		}
	}
	off := min(p.off, len(s.data))
	line = sort.SearchInts(s.lines, off+1)
	start := s.lines[line-1]
	return line, utf8.RuneCount(s.data[start:off]) + 1
}

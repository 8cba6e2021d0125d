package schema

import (
	"cuelang.org/go/cue"
	"strings"
)

// place finds where the user wrote a value: in a tree, or in a CUE file.
func (r *cueReader) place(v cue.Value, p trail, up pos) pos {
	for _, t := range r.trees {
		if n, ok := t.find(p); ok {
			return n.pos
		}
	}
	if at, ok := r.posOf(v.Pos()); ok {
		return at
	}
	return up
}

func (r *cueReader) value(v cue.Value, p trail, depth int) *node {
	n := &node{pos: r.place(v, p, pos{src: r.firstCUE(), line: 1, col: 1})}
	if r.nodes++; depth > maxDepth || r.nodes > maxNodes {
		r.rep.add(fault{rule: "syntax", path: p, pos: &n.pos, says: "the document nests too deeply or has too many values"})
		n.kind = kindBad
		return n
	}
	if d, ok := v.Default(); ok {
		v = d
	}
	switch v.Kind() {
	case cue.NullKind:
		n.kind = kindNull
	case cue.BoolKind:
		n.kind = kindBool
		n.bool, _ = v.Bool()
	case cue.IntKind, cue.FloatKind, cue.NumberKind:
		r.number(n, v, p)
	case cue.StringKind:
		n.kind = kindString
		n.text, _ = v.String()
	case cue.ListKind:
		n.kind = kindArray
		it, _ := v.List()
		for it.Next() {
			n.items = append(n.items, r.value(it.Value(), p.add(at(len(n.items))), depth+1))
		}
	case cue.StructKind:
		n.kind = kindObject
		it, _ := v.Fields()
		for it.Next() {
			name := it.Selector().Unquoted()
			c := r.value(it.Value(), p.add(key(name)), depth+1)
			n.append(field{name: name, key: c.pos, value: c})
		}
	default:
		return r.open(n, v, p, depth)
	}
	return n
}

func (r *cueReader) number(n *node, v cue.Value, p trail) {
	n.kind = kindInt
	if v.Kind() != cue.IntKind {
		n.kind = kindFloat
	}
	b, err := v.MarshalJSON()
	n.text = string(b)
	if err != nil || !finite(n.text) {
		n.kind = kindBad
		r.rep.add(fault{rule: "number-finite", path: p, pos: &n.pos, got: "a number out of range", want: "a finite number"})
	}
	if n.kind == kindFloat && !strings.ContainsAny(n.text, ".eE") {
		n.text += ".0"
	}
}

// open takes the definitions' default where the user only gave a limit.
func (r *cueReader) open(n *node, v cue.Value, p trail, depth int) *node {
	w := r.fleet.LookupPath(cuePath(p))
	if d, ok := w.Default(); ok {
		w = d
	}
	if w.Exists() && w.IsConcrete() && w.Kind() != cue.BottomKind {
		filled := r.value(w, p, depth)
		filled.pos = n.pos
		return filled
	}
	n.kind = kindOpen
	r.rep.add(fault{rule: "incomplete", path: p, pos: &n.pos, says: "has a type or limit, but no value", got: "no value", want: "a value"})
	return n
}

func cuePath(p trail) cue.Path {
	out := make([]cue.Selector, len(p))
	for i, s := range p {
		if s.index >= 0 {
			out[i] = cue.Index(s.index)
		} else {
			out[i] = cue.Str(s.name)
		}
	}
	return cue.MakePath(out...)
}

package schema

import "fmt"

// merge unifies b into a, as CUE would: objects join, equal values agree, the rest conflicts.
func merge(rep *report, a, b *node, p trail) *node {
	switch {
	case a.kind == kindBad || b.kind == kindBad:
		return a
	case a.kind == kindObject && b.kind == kindObject:
		for _, f := range b.fields {
			if m := a.member(f.name); m != nil {
				m.value = merge(rep, m.value, f.value, p.add(key(f.name)))
			} else {
				a.append(f)
			}
		}
		return a
	case a.kind == kindArray && b.kind == kindArray && len(a.items) == len(b.items):
		for i := range a.items {
			a.items[i] = merge(rep, a.items[i], b.items[i], p.add(at(i)))
		}
		return a
	case a.kind == b.kind && a.kind != kindArray && a.kind != kindObject && a.text == b.text && a.bool == b.bool:
		return a
	}
	line, _ := rep.sources[a.pos.src].locate(a.pos)
	got, want := show(p, b), show(p, a)
	if a.kind == kindArray && b.kind == kindArray {
		got, want = fmt.Sprintf("a list of %d", len(b.items)), fmt.Sprintf("a list of %d", len(a.items))
	}
	rep.add(fault{rule: "conflict", path: p, pos: &b.pos, got: got, want: want,
		says: fmt.Sprintf("%s here, but %s at %s:%d", got, want, rep.sources[a.pos.src].name, line),
		hint: "several files are unified: each value is given once, or alike"})
	return &node{kind: kindBad, pos: a.pos}
}

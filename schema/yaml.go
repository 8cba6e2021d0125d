package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlReader turns YAML into nodes. Numbers must be written as in JSON: forms whose
// meaning depends on the YAML version (octal 0123, 1_000, 0x1F) are refused.
type yamlReader struct {
	src   int
	rep   *report
	nodes int
	path  trail
}

// parseYAML returns nil after a syntax error.
func parseYAML(src int, data []byte, rep *report) (n *node) {
	r := &yamlReader{src: src, rep: rep}
	defer func() {
		if e := recover(); e != nil {
			s, ok := e.(syntaxFault)
			if !ok { // the YAML parser gives up on some malformed input
				s.fault = fault{rule: "syntax", pos: &pos{src: src, line: 1, col: 1}, says: "the YAML parser cannot read this file"}
			}
			rep.add(s.fault)
			n = nil
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		r.fail(nil, yamlSays(err), yamlLine(err))
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			r.fail(nil, yamlSays(err), yamlLine(err))
		}
		r.fail(&second, "a second document begins here; a file holds one document", 0)
	}
	return r.value(&doc, 0)
}

func (r *yamlReader) fail(at *yaml.Node, says string, line int) {
	p := pos{src: r.src, line: max(line, 1), col: 1}
	if at != nil {
		p = r.pos(at)
	}
	panic(syntaxFault{fault{rule: "syntax", path: r.path, pos: &p, says: says}})
}

func (r *yamlReader) pos(n *yaml.Node) pos {
	return pos{src: r.src, line: max(n.Line, 1), col: max(n.Column, 1)}
}

var yamlLineText = regexp.MustCompile(`line (\d+): `)

func yamlLine(err error) int {
	if m := yamlLineText.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return line
	}
	return 1
}

func yamlSays(err error) string {
	if errors.Is(err, io.EOF) {
		return "the file is empty"
	}
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	return "read YAML: " + clip(yamlLineText.ReplaceAllString(s, ""))
}

func (r *yamlReader) value(y *yaml.Node, depth int) *node {
	if depth > maxDepth {
		r.fail(y, fmt.Sprintf("values are nested more than %d levels deep", maxDepth), 0)
	}
	if r.nodes++; r.nodes > maxNodes {
		r.fail(y, fmt.Sprintf("the document has more than %d values", maxNodes), 0)
	}
	n := &node{pos: r.pos(y)}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) != 1 {
			r.fail(y, "the file is empty", 0)
		}
		return r.value(y.Content[0], depth)
	case yaml.AliasNode:
		return r.value(y.Alias, depth+1)
	case yaml.MappingNode:
		n.kind = kindObject
		r.mapping(n, y, depth)
	case yaml.SequenceNode:
		n.kind = kindArray
		for i, c := range y.Content {
			r.path = append(r.path, at(i))
			n.items = append(n.items, r.value(c, depth+1))
			r.path = r.path[:len(r.path)-1]
		}
	default:
		r.scalar(n, y)
	}
	return n
}

func (r *yamlReader) mapping(n *node, y *yaml.Node, depth int) {
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			r.fail(k, "a key is plain text", 0)
		}
		if k.Tag == "!!merge" || k.Value == "<<" && k.Style == 0 {
			merged = append(merged, r.merges(v, depth)...)
			continue
		}
		r.path = append(r.path, key(k.Value))
		addField(r.rep, n, field{name: k.Value, key: r.pos(k), value: r.value(v, depth+1)}, r.path)
		r.path = r.path[:len(r.path)-1]
	}
	for _, m := range merged {
		for _, f := range m.fields {
			if n.member(f.name) == nil {
				n.append(f)
			}
		}
	}
}

// merges reads the value of a merge key: one mapping, or several of which the first wins.
func (r *yamlReader) merges(v *yaml.Node, depth int) []*node {
	n := r.value(v, depth+1)
	list := []*node{n}
	if n.kind == kindArray {
		list = n.items
	}
	for _, m := range list {
		if m.kind != kindObject {
			r.fail(v, "<< takes a mapping", 0)
		}
	}
	return list
}

var (
	decimalInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	decimalFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	yamlNumber   = regexp.MustCompile(`^[-+]?(0[0-9]+|0o[0-7_]+)$`)
)

func (r *yamlReader) scalar(n *node, y *yaml.Node) {
	n.text = y.Value
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.kind = kindNull
	case "!!bool":
		n.kind, n.bool = kindBool, strings.EqualFold(y.Value, "true")
	case "!!int", "!!float":
		r.number(n, y)
	case "!!str":
		n.kind = kindString
		if y.Style == 0 && decimalFloat.MatchString(y.Value) { // too large for YAML's float
			r.number(n, y)
		} else if y.Style == 0 && yamlNumber.MatchString(y.Value) {
			r.ambiguous(n)
		}
	case "!!timestamp":
		n.kind = kindString
	default:
		r.fail(y, "the tag "+quote(tag)+" is not known here", 0)
	}
}

func (r *yamlReader) number(n *node, y *yaml.Node) {
	switch {
	case decimalInt.MatchString(y.Value):
		n.kind = kindInt
	case decimalFloat.MatchString(y.Value):
		n.kind = kindFloat
	case strings.Contains(strings.ToLower(y.Value), "inf"), strings.EqualFold(y.Value, ".nan"):
		n.kind = kindBad
		r.rep.add(fault{rule: "number-finite", path: r.path.add(), pos: &n.pos, got: clip(y.Value), want: "a finite number"})
		return
	default:
		r.ambiguous(n)
		return
	}
	if !finite(n.text) {
		n.kind = kindBad
		r.rep.add(fault{rule: "number-finite", path: r.path.add(), pos: &n.pos, got: clip(y.Value), want: "a finite number"})
	}
}

func (r *yamlReader) ambiguous(n *node) {
	n.kind = kindBad
	r.rep.add(fault{rule: "number-form", path: r.path.add(), pos: &n.pos, got: show(r.path, &node{kind: kindInt, text: n.text}),
		want: "a decimal number, or text in quotes", hint: "YAML versions read this form differently (octal, hexadecimal, grouped digits)"})
}

// finite reports whether a decimal literal fits a 64-bit float.
func finite(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

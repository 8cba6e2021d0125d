package schema

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"
)

// Bounds of a CUE source. They keep the recursion of CUE's parser and evaluator small.
const (
	maxCUEBytes  = 4 << 20
	maxCUERun    = 4096 // tokens without a comma or a line's end
	maxCUEErrors = 100
)

// cueReader evaluates the CUE sources of a document, unified with the trees of the
// other sources, and reads the result back as a tree.
type cueReader struct {
	rep   *report
	trees []*node
	fleet cue.Value // unified with #Fleet; fills values that the user left open
	nodes int
}

// evaluate returns nil after an error.
func evaluateCUE(rep *report, srcs []int, trees []*node) (n *node) {
	r := &cueReader{rep: rep, trees: trees}
	defer func() {
		if e := recover(); e != nil { // the evaluator gives up on some malformed input
			rep.add(fault{rule: "syntax", pos: &pos{src: srcs[0], line: 1, col: 1}, says: "the CUE evaluator cannot read this file"})
			n = nil
		}
	}()
	files := r.parse(srcs)
	if files == nil {
		return nil
	}
	ev, err := newEvaluator()
	if err != nil {
		rep.add(fault{rule: "syntax", says: err.Error()})
		return nil
	}
	v := r.unify(ev, files)
	if err := v.Validate(); err != nil {
		r.report(err)
		return nil
	}
	r.fleet = ev.fleet.Unify(v)
	return r.value(v, nil, 0)
}

func (r *cueReader) parse(srcs []int) []*ast.File {
	var files []*ast.File
	for _, i := range srcs {
		s := r.rep.sources[i]
		if !r.bounded(i, s.data) {
			return nil
		}
		if strings.TrimSpace(strings.TrimPrefix(string(s.data), "\ufeff")) == "" {
			r.rep.add(fault{rule: "syntax", pos: &pos{src: i, line: 1, col: 1}, says: "the file is empty"})
			return nil
		}
		f, err := parser.ParseFile(s.name, s.data, parser.ParseComments)
		if err != nil {
			r.report(err)
			continue
		}
		if !r.harmless(i, f) {
			continue
		}
		files = append(files, f)
	}
	if len(files) < len(srcs) {
		return nil
	}
	return files
}

// bounded refuses text that would nest deeply.
func (r *cueReader) bounded(src int, data []byte) bool {
	refuse := func(off int, says string) bool {
		r.rep.add(fault{rule: "syntax", pos: &pos{src: src, off: off}, says: says})
		return false
	}
	if len(data) > maxCUEBytes {
		return refuse(0, fmt.Sprintf("a CUE file of %d bytes; at most %d are read", len(data), maxCUEBytes))
	}
	var s scanner.Scanner
	f := token.NewFile(r.rep.sources[src].name, -1, len(data))
	s.Init(f, data, func(token.Pos, string, []any) {}, 0)
	depth, run := 0, 0
	for {
		p, tok, _ := s.Scan()
		run++
		switch tok {
		case token.EOF:
			return true
		case token.COMMA:
			run = 0
		case token.LBRACE, token.LBRACK, token.LPAREN, token.INTERPOLATION:
			if depth++; depth > maxDepth {
				return refuse(p.Offset(), fmt.Sprintf("values are nested more than %d levels deep", maxDepth))
			}
		case token.RBRACE, token.RBRACK, token.RPAREN:
			depth--
			run = 0
		}
		if run > maxCUERun {
			return refuse(p.Offset(), fmt.Sprintf("an expression of more than %d words", maxCUERun))
		}
	}
}

// unify builds all files as one package, so that they may refer to each other's fields.
// Imports other than CUE's own packages are refused: nothing is fetched or read.
func (r *cueReader) unify(ev *evaluator, files []*ast.File) cue.Value {
	refuse := func(at token.Pos, path string) *build.Instance {
		if first, _, _ := strings.Cut(path, "/"); !strings.ContainsAny(first, ".@") {
			return nil // one of CUE's own, or an error when it is built
		}
		inst := build.NewContext().NewInstance(path, nil)
		inst.Err = errors.Newf(at, "import %q: this package cannot be imported here", path)
		return inst
	}
	inst := build.NewContext(build.Loader(refuse)).NewInstance("", refuse)
	pkg := ""
	for _, f := range files {
		if name := f.PackageName(); name != "" {
			pkg = name
		}
	}
	for _, f := range files {
		if pkg != "" && f.PackageName() == "" {
			f.Decls = append([]ast.Decl{&ast.Package{Name: ast.NewIdent(pkg)}}, f.Decls...)
		}
		if err := inst.AddSyntax(f); err != nil {
			inst.Err = errors.Append(inst.Err, err)
		}
	}
	if err := inst.Complete(); err != nil {
		inst.Err = errors.Append(inst.Err, errors.Promote(err, "complete"))
	}
	v := ev.ctx.BuildInstance(inst)
	for _, t := range r.trees {
		v = v.Unify(ev.ctx.BuildExpr(syntaxOf(t)))
	}
	return v
}

// report turns CUE's errors into faults with the user's positions.
func (r *cueReader) report(err error) {
	for i, e := range errors.Errors(err) {
		if i == maxCUEErrors {
			return
		}
		p := pathOf(e.Path())
		if r.rep.isBlamed(p) && len(p) > 0 {
			continue
		}
		f := fault{rule: "syntax", path: p, pos: r.userPos(e)}
		if len(p) > 0 {
			f.rule = "conflict"
		}
		f.says = "does not unify: values or limits of these files contradict each other"
		if !secretPlace(p) {
			format, args := e.Msg()
			f.says = clip(fmt.Sprintf(format, args...))
			if holdsSecret(fmt.Sprintf(format, args...)) || len(p) == 0 && r.secretLine(*f.pos) {
				f.says = "cannot be read; the text is not shown, it may be secret"
			}
		}
		if others := r.otherPlaces(e, *f.pos); others != "" {
			f.hint = "see also " + others
		}
		if strings.HasPrefix(f.says, "import") || strings.HasPrefix(f.says, "package ") {
			f.rule, f.says = "import", "this package cannot be imported here"
			f.hint = "available are " + strings.Join(allowedImports, ", ") + "; the definitions are added without an import"
		}
		r.rep.add(f)
	}
}

// secretLine reports whether a source's line names something secret.
func (r *cueReader) secretLine(p pos) bool {
	s := r.rep.sources[p.src]
	line, _ := s.locate(p)
	s.locate(pos{}) // builds the index of lines
	if line < 1 || line > len(s.lines) {
		return false
	}
	text := s.data[s.lines[line-1]:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	return secretLines.Match(text)
}

var secretLines = regexp.MustCompile(`(?i)(password|passphrase|secret|token|_key|\bkey|identity|known_hosts|trust|PRIVATE)`)

// userPos returns the first position of an error that lies in a source.
func (r *cueReader) userPos(e errors.Error) *pos {
	for _, p := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
		if at, ok := r.posOf(p); ok {
			return &at
		}
	}
	return &pos{src: r.firstCUE(), line: 1, col: 1}
}

// otherPlaces lists where else an error's values stand.
func (r *cueReader) otherPlaces(e errors.Error, but pos) string {
	var out []string
	for _, p := range e.InputPositions() {
		at, ok := r.posOf(p)
		if !ok || at == but || len(out) == 4 {
			continue
		}
		s := r.rep.sources[at.src]
		line, col := s.locate(at)
		if where := fmt.Sprintf("%s:%d:%d", s.name, line, col); !contains(out, where) {
			out = append(out, where)
		}
	}
	return strings.Join(out, ", ")
}

func (r *cueReader) firstCUE() int {
	for i, s := range r.rep.sources {
		if format(s.name) == formatCUE {
			return i
		}
	}
	return 0
}

func (r *cueReader) posOf(p token.Pos) (pos, bool) {
	if !p.IsValid() {
		return pos{}, false
	}
	for i, s := range r.rep.sources {
		if s.name == p.Filename() {
			return pos{src: i, off: p.Offset()}, true
		}
	}
	return pos{}, false
}

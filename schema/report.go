package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// maxProblems bounds what one load reports.
const maxProblems = 1000

// clipAt bounds the bytes of a document that one message repeats.
const clipAt = 80

// report collects what is wrong with a document.
type report struct {
	strict   bool
	sources  []*source
	root     *node
	errors   []*problem.Problem
	warnings []*problem.Problem
	blamed   map[string]bool // fields with an error
	dropped  int
}

// fault is one thing that a rule found.
type fault struct {
	rule string
	path trail
	pos  *pos   // where to point; nil = the value at trail, or its nearest ancestor
	says string // sentence after the field's name
	got  string
	want string
	hint string
}

// add reports a fault with the severity of its rule.
func (r *report) add(f fault) {
	rule := ruleByID(f.rule)
	field := f.path.String()
	if len(r.errors)+len(r.warnings) >= maxProblems {
		r.dropped++
		return
	}
	name := field
	if holdsSecret(name) { // a key of the document may be anything
		name = "a field whose name is not shown"
	}
	p := problem.New(problem.Invalid, "invalid_fleet", message(name, f), f.hint)
	p.Field, p.Rule, p.Got, p.Want = name, f.rule, f.got, f.want
	p.File, p.Line, p.Column = r.place(f)
	if rule.Severity == Note || rule.Severity == Warning && !r.strict {
		r.warnings = append(r.warnings, p)
		return
	}
	if r.blamed == nil {
		r.blamed = map[string]bool{}
	}
	r.blamed[field] = true
	r.errors = append(r.errors, p)
}

func message(field string, f fault) string {
	says := f.says
	if says == "" {
		says = fmt.Sprintf("got %s, want %s", f.got, f.want)
	}
	if field == "" {
		return says
	}
	return field + ": " + says
}

func (r *report) place(f fault) (string, int, int) {
	var at pos
	switch {
	case f.pos != nil:
		at = *f.pos
	case r.root != nil:
		n, _ := r.root.find(f.path)
		at = n.pos
	}
	if at.src < 0 || at.src >= len(r.sources) {
		return "", 0, 0
	}
	line, col := r.sources[at.src].locate(at)
	return r.sources[at.src].name, line, col
}

// isBlamed reports whether the field or one of its ancestors was reported.
func (r *report) isBlamed(p trail) bool {
	for i := len(p); i > 0; i-- {
		if r.blamed[p[:i].String()] {
			return true
		}
	}
	return false
}

// blamedWithin reports whether the field, an ancestor or a descendant was reported.
func (r *report) blamedWithin(p trail) bool {
	if r.isBlamed(p) {
		return true
	}
	prefix := p.String()
	for b := range r.blamed {
		if strings.HasPrefix(b, prefix) {
			return true
		}
	}
	return false
}

// refusal is the error of a document: everything that is wrong, and the warnings beside it.
type refusal struct {
	errors   problem.Set
	warnings []*problem.Problem
}

func (e *refusal) Error() string { return e.errors.Error() }
func (e *refusal) Unwrap() error { return e.errors }

// Warnings returns the warnings of a document that Load refused with err, in document order.
func Warnings(err error) []*problem.Problem {
	var r *refusal
	if errors.As(err, &r) {
		return r.warnings
	}
	return nil
}

// err returns all errors in document order, or nil.
func (r *report) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	sortProblems(r.errors, r.sources)
	sortProblems(r.warnings, r.sources)
	if r.dropped > 0 {
		last := problem.New(problem.Invalid, "invalid_fleet", fmt.Sprintf("%d more findings are left out", r.dropped), "")
		return &refusal{append(r.errors, last), r.warnings}
	}
	return &refusal{r.errors, r.warnings}
}

func sortProblems(ps []*problem.Problem, srcs []*source) {
	order := map[string]int{}
	for i, s := range srcs {
		order[s.name] = i
	}
	slices.SortStableFunc(ps, func(a, b *problem.Problem) int {
		if a.File != b.File {
			return order[a.File] - order[b.File]
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// clip shortens text of a document.
func clip(s string) string {
	if len(s) <= clipAt {
		return s
	}
	cut := clipAt
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}

// quote writes text of a document on one line, without control characters. Text in the
// form of a secret is not shown.
func quote(s string) string {
	if holdsSecret(s) {
		return hidden(s)
	}
	return strconv.Quote(clip(s))
}

// show describes a value in a message. Values of secret places and values inside
// objects are never shown.
func show(p trail, n *node) string {
	if n == nil {
		return "nothing"
	}
	if secretPlace(p) && n.kind != kindNull && n.kind != kindArray && n.kind != kindObject {
		if n.kind == kindString {
			return hidden(n.text)
		}
		return "a value that is not shown"
	}
	switch n.kind {
	case kindNull:
		return "null"
	case kindBool:
		return strconv.FormatBool(n.bool)
	case kindInt, kindFloat:
		return clip(n.text)
	case kindString:
		if n.raw != "" {
			return quote(n.raw)
		}
		return quote(withoutUserInfo(n.text))
	case kindArray:
		return "a list"
	case kindObject:
		return "an object"
	}
	return "no value"
}

// withoutUserInfo hides what stands between the scheme and the host of a URL.
func withoutUserInfo(s string) string {
	i := strings.LastIndexByte(s, '@')
	j := strings.Index(s, "//")
	if i < 0 || j < 0 || i < j {
		return s
	}
	return s[:j+2] + "…" + s[i:]
}

package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Source is one file of a document. The name's extension (.cue, .yaml, .yml, .json)
// tells the format; a name without one, such as "-", holds JSON or YAML.
type Source struct {
	Name string
	Data []byte
}

// Options say how a document is loaded.
type Options struct {
	// Strict turns warnings into errors.
	Strict bool
	// Env looks up the variables of ${NAME} references; nil knows none.
	Env func(name string) (string, bool)
	// Reference leaves out, after they were checked, Fleet.Deploy and what else the reference
	// does not know.
	Reference bool
	// Read returns the bytes of a file that the document names (profiles and
	// calibration), to compare the latency limits with measured floors. Nil reads nothing.
	Read func(path string) ([]byte, error)
}

// Document is a valid fleet document with every default filled in.
type Document struct {
	Fleet fleet.Fleet
	// Warnings are in document order, each with its rule and place.
	Warnings []*problem.Problem
	// Derived holds the values that follow from the settings.
	Derived map[string]any
	// Digest is "sha256:" and the SHA-256 of the canonical JSON of Fleet.
	Digest string

	rep *report
}

// Position tells where the user wrote a field ("engines[0].url"). For a field that was
// left out it is the place of the nearest object around it.
func (d *Document) Position(field string) (file string, line, col int) {
	p, ok := parsePath(field)
	if !ok {
		p = nil
	}
	return d.rep.place(fault{path: p})
}

// Load reads, unifies and checks the sources of one document. The error is a
// problem.Set with everything that is wrong (Warnings has what else was noticed), or the
// context's cause.
func Load(ctx context.Context, srcs []Source, opt Options) (*Document, error) {
	if len(srcs) == 0 {
		return nil, problem.New(problem.Invalid, "no_fleet_file", "no fleet file is given", "name one, or use --preset")
	}
	return within(ctx, budgetOf(srcs), srcs[0].Name, func() (*Document, error) { return loadAll(ctx, srcs, opt) })
}

func loadAll(ctx context.Context, srcs []Source, opt Options) (*Document, error) {
	rep := &report{strict: opt.Strict}
	for _, s := range srcs {
		rep.sources = append(rep.sources, &source{name: s.Name, data: s.Data})
	}
	n := read(rep)
	if n == nil {
		return nil, orUnknown(rep)
	}
	rep.root = n
	z := normaliser{rep}
	if n.kind == kindObject {
		z.document(n)
		z.resolve(n, opt.Env)
	}
	b, err := judge(ctx, rep, n)
	if err != nil {
		return nil, err
	}
	if b == nil {
		partial(rep, n)
		return nil, orUnknown(rep)
	}
	d := &Document{rep: rep}
	if err := json.Unmarshal(b, &d.Fleet); err != nil {
		return nil, problem.Wrap(problem.Invalid, "invalid_fleet", "read the fleet's values", err, "")
	}
	complete(&d.Fleet)
	check(ctx, rep, &d.Fleet, opt)
	if err := rep.err(); err != nil {
		return nil, err
	}
	fold(&d.Fleet)
	sortProblems(rep.warnings, rep.sources)
	d.Warnings = rep.warnings
	d.Derived = derived(d.Fleet)
	if opt.Reference {
		d.Fleet.Deploy, d.Fleet.Serving.BodyMemoryBytes = nil, 0
	}
	if d.Digest, err = fleet.Digest(d.Fleet); err != nil {
		return nil, problem.Wrap(problem.Failed, "digest_failed", "digest the fleet", err, "")
	}
	return d, ctx.Err()
}

func orUnknown(rep *report) error {
	if err := rep.err(); err != nil {
		return err
	}
	return problem.New(problem.Invalid, "invalid_fleet", "the document cannot be read", "")
}

// Formats of a source.
const (
	formatJSON = iota
	formatYAML
	formatCUE
	formatAny
)

func format(name string) int {
	switch strings.ToLower(path.Ext(name)) {
	case ".json":
		return formatJSON
	case ".yaml", ".yml":
		return formatYAML
	case ".cue":
		return formatCUE
	}
	return formatAny
}

// read parses every source and unifies them; nil when one cannot be read.
func read(rep *report) *node {
	var trees []*node
	var cues []int
	failed := false
	for i, s := range rep.sources {
		if len(s.data) > maxBytes {
			rep.add(fault{rule: "syntax", pos: &pos{src: i}, says: fmt.Sprintf("the file has %d bytes; at most %d are read", len(s.data), maxBytes)})
			failed = true
			continue
		}
		if isUTF16(s.data) {
			rep.add(fault{rule: "syntax", pos: &pos{src: i, line: 1, col: 1}, says: "the file is UTF-16", hint: "save it as UTF-8"})
			failed = true
			continue
		}
		var n *node
		switch form := format(s.name); {
		case form == formatCUE:
			cues = append(cues, i)
			continue
		case form == formatYAML || form == formatAny && !looksLikeJSON(s.data):
			n = parseYAML(i, s.data, rep)
		default:
			n = parseJSON(i, s.data, rep)
		}
		if n == nil {
			failed = true
			continue
		}
		if n.kind == kindObject {
			normaliser{rep}.document(n)
		}
		trees = append(trees, n)
	}
	if len(cues) > 0 {
		n := evaluateCUE(rep, cues, trees)
		if failed {
			return nil
		}
		return n
	}
	if failed {
		return nil
	}
	n := trees[0]
	for _, t := range trees[1:] {
		n = merge(rep, n, t, nil)
	}
	return n
}

// isUTF16 tells by the byte order mark, or by zeros in every other byte.
func isUTF16(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	return b[0] == 0xff && b[1] == 0xfe || b[0] == 0xfe && b[1] == 0xff ||
		b[0] == 0 && b[1] != 0 && b[2] == 0 && b[3] != 0 || b[0] != 0 && b[1] == 0 && b[2] != 0 && b[3] == 0
}

func looksLikeJSON(b []byte) bool {
	t := strings.TrimLeft(string(b[:min(len(b), 512)]), " \t\r\n\ufeff")
	return strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[")
}

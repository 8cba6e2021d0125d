package schema

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"pgregory.net/rapid"
)

// cueAccepts asks CUE alone.
func cueAccepts(t testing.TB, n *node) bool {
	t.Helper()
	ev, err := newEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	return ev.fleet.Unify(ev.ctx.BuildExpr(syntaxOf(n))).Validate(cue.Concrete(true)) == nil
}

// explainFinds counts what explain alone reports.
func explainFinds(n *node) []string {
	rep := &report{sources: []*source{{name: "x", data: nil}}, root: n}
	explain(rep, n)
	return fields(rep.errors)
}

func parsed(t testing.TB, file string) *node {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rep := &report{sources: []*source{{name: file, data: b}}}
	n := read(rep)
	if n == nil {
		t.Fatalf("%s: %v", file, fields(rep.errors))
	}
	return n
}

// all lists every value below n with a way to replace it.
func all(n *node) []*node {
	out := []*node{n}
	for _, f := range n.fields {
		out = append(out, all(f.value)...)
	}
	for _, i := range n.items {
		out = append(out, all(i)...)
	}
	return out
}

var oddValues = []node{
	{kind: kindNull}, {kind: kindBool, bool: true}, {kind: kindInt, text: "0"}, {kind: kindInt, text: "-1"}, {kind: kindInt, text: "1"},
	{kind: kindInt, text: "70000"}, {kind: kindInt, text: "99999999999999999999"}, {kind: kindFloat, text: "1.0"}, {kind: kindFloat, text: "0.5"},
	{kind: kindFloat, text: "-0.0"}, {kind: kindFloat, text: "1e300"}, {kind: kindString, text: ""}, {kind: kindString, text: "prefill"},
	{kind: kindString, text: "5m"}, {kind: kindString, text: "1GiB"}, {kind: kindString, text: "file:x"}, {kind: kindString, text: "a\nb"},
	{kind: kindString, text: "45000-45100"}, {kind: kindString, text: "127.0.0.1:80"}, {kind: kindArray}, {kind: kindObject},
	{kind: kindArray, items: []*node{{kind: kindInt, text: "1"}}}, {kind: kindArray, items: []*node{{kind: kindString, text: "observe"}}},
	{kind: kindObject, fields: []field{{name: "x", value: &node{kind: kindNull}}}},
}

// explain finds a fault exactly where CUE refuses: whatever value of a document is
// replaced, dropped or renamed.
func TestExplainAgreesWithCUE(t *testing.T) {
	seeds := []string{"testdata/fleets/valid/every-key-set.json", "testdata/fleets/valid/shared-gpu-pair.json", "testdata/deploy/valid/process.yaml", "testdata/deploy/valid/two-simulated.yaml",
		"testdata/deploy/valid/router-etcd.yaml"}
	rapid.Check(t, func(r *rapid.T) {
		n := parsed(t, rapid.SampledFrom(seeds).Draw(r, "seed"))
		var did []string
		for range rapid.IntRange(1, 2).Draw(r, "changes") {
			did = append(did, change(r, n))
		}
		accepts, finds := cueAccepts(t, n), explainFinds(n)
		if accepts != (len(finds) == 0) {
			r.Fatalf("after %s CUE accepts: %v, explain finds %v", strings.Join(did, " and "), accepts, finds)
		}
	})
}

func change(r *rapid.T, n *node) string {
	values := all(n)
	v := values[rapid.IntRange(0, len(values)-1).Draw(r, "at")]
	if v.kind == kindObject && len(v.fields) > 0 {
		i := rapid.IntRange(0, len(v.fields)-1).Draw(r, "member")
		name := v.fields[i].name
		switch rapid.IntRange(0, 2).Draw(r, "how") {
		case 0:
			v.fields = append(v.fields[:i:i], v.fields[i+1:]...)
			v.index = nil
			return "dropping " + name
		case 1:
			v.fields[i].name += "x"
			v.index = nil
			return "renaming " + name
		}
	}
	odd := rapid.SampledFrom(oddValues).Draw(r, "value")
	was := show(nil, v)
	*v = odd
	return fmt.Sprintf("replacing %s by %s", was, show(nil, &odd))
}

package gates

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// told is a record's lines of replacements: their kinds and bodies.
func told(t *testing.T, bodies ...any) (out []record.Event) {
	t.Helper()
	for i, b := range bodies {
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		kind := map[string]record.Kind{"ReplaceStarted": record.KindReplaceStarted, "ReplaceStep": record.KindReplaceStep, "ReplaceDone": record.KindReplaceDone,
			"RollbackStarted": record.KindRollbackStarted}[reflect.TypeOf(b).Name()]
		out = append(out, record.Event{Seq: int64(i + 1), Kind: kind, Body: raw})
	}
	return out
}

// TestChosen says which replacement is taken back, and which of its engines, the newest first.
func TestChosen(t *testing.T) {
	forth := func(engines ...string) record.ReplaceStarted { return record.ReplaceStarted{Engines: engines} }
	back := func(of int64, engines ...string) record.ReplaceStarted {
		return record.ReplaceStarted{Engines: engines, Back: &record.WayBack{Of: of, Fleet: refOf(nil)}}
	}
	step := func(e string) record.ReplaceStep {
		return record.ReplaceStep{Engines: []string{e}, Stage: stageOut, Status: record.ReplaceOK}
	}
	done := func(engines ...string) record.ReplaceDone { return record.ReplaceDone{Engines: engines} }
	for _, c := range []struct {
		what    string
		lines   []any
		o       ReplaceOptions
		of      int64
		engines []string
	}{
		{"none", nil, ReplaceOptions{}, 0, nil},
		{"the newest", []any{forth("a"), done("a"), forth("b", "c"), done("b", "c")}, ReplaceOptions{}, 3, []string{"c", "b"}},
		{"a named line", []any{forth("a"), done("a"), forth("b"), done("b")}, ReplaceOptions{Of: 1}, 1, []string{"a"}},
		{"a line that begins none", []any{forth("a"), done("a")}, ReplaceOptions{Of: 2}, 0, nil},
		{"the newest of an engine", []any{forth("a"), done("a"), forth("b"), done("b")}, ReplaceOptions{Engines: []string{"a"}}, 1, []string{"a"}},
		{"engines of two", []any{forth("a"), done("a"), forth("b"), done("b")}, ReplaceOptions{Engines: []string{"a", "b"}}, 0, nil},
		{"one that stopped", []any{forth("a", "b", "c"), step("a"), step("b")}, ReplaceOptions{}, 1, []string{"b", "a"}},
		{"one that did nothing yet", []any{forth("a", "b")}, ReplaceOptions{}, 1, []string{"b", "a"}},
		{"one that a rollback ended", []any{forth("a", "b"), step("a"), record.RollbackStarted{To: "B"}}, ReplaceOptions{}, 1, []string{"a"}},
		{"one taken back in part", []any{forth("a", "b"), done("a", "b"), back(1, "b"), done("b")}, ReplaceOptions{}, 1, []string{"a"}},
		{"one taken back", []any{forth("a"), done("a"), back(1, "a"), done("a")}, ReplaceOptions{}, 0, nil},
		{"one taken back, named", []any{forth("a"), done("a"), back(1, "a"), done("a")}, ReplaceOptions{Of: 1}, 0, nil},
		{"the one before", []any{forth("a"), done("a"), forth("a"), done("a"), back(3, "a"), done("a")}, ReplaceOptions{}, 1, []string{"a"}},
		{"a way back", []any{forth("a"), done("a"), back(1, "a"), done("a")}, ReplaceOptions{Of: 3}, 3, []string{"a"}},
		{"one whose way back was taken back", []any{forth("a"), done("a"), back(1, "a"), done("a"), back(3, "a"), done("a")}, ReplaceOptions{}, 1, []string{"a"}},
	} {
		got, err := chosen(pastReplacements(told(t, c.lines...)), c.o)
		var p *problem.Problem
		switch {
		case c.of == 0:
			if !errors.As(err, &p) || p.Code != "nothing_to_take_back" || p.Hint == "" {
				t.Errorf("%s: %v", c.what, err)
			}
		case err != nil || got.Seq != c.of || !slices.Equal(got.touched(), c.engines):
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
}

// TestPutLaunch gives engines launches of another document and leaves those of the others alone.
func TestPutLaunch(t *testing.T) {
	launch := func(image string) fleet.Launch { return fleet.Launch{Kind: fleet.LaunchContainer, Image: image} }
	doc := func(launches map[string]fleet.Launch, a, b, c string) fleet.Fleet {
		return fleet.Fleet{Deploy: &fleet.Deploy{Defaults: fleet.Defaults{Launch: "std"}, Launch: launches,
			Engines: map[string]fleet.Place{"a": {Host: "h", Launch: a}, "b": {Host: "h", Launch: b}, "c": {Host: "h", Launch: c}}}}
	}
	old := doc(map[string]fleet.Launch{"std": launch("one")}, "", "", "")
	for _, c := range []struct {
		what    string
		now     fleet.Fleet
		engines []string
		names   map[string]string // of a, b, c
	}{
		{"an image changed for all", doc(map[string]fleet.Launch{"std": launch("two")}, "", "", ""), []string{"a", "b", "c"}, map[string]string{"a": "", "b": "", "c": ""}},
		{"an image changed for all, one returns", doc(map[string]fleet.Launch{"std": launch("two")}, "", "", ""), []string{"a"}, map[string]string{"a": "std-before-1", "b": "", "c": ""}},
		{"two return", doc(map[string]fleet.Launch{"std": launch("two")}, "", "", ""), []string{"a", "b"}, map[string]string{"a": "std-before-1", "b": "std-before-1", "c": ""}},
		{"another launch for one", doc(map[string]fleet.Launch{"std": launch("one"), "new": launch("two")}, "new", "", ""), []string{"a"}, map[string]string{"a": "", "b": "", "c": ""}},
		{"the name is taken", doc(map[string]fleet.Launch{"std": launch("two"), "std-before-1": launch("three")}, "", "std-before-1", ""), []string{"a"}, map[string]string{"a": "std-before-2", "b": "std-before-1", "c": ""}},
		{"the launch is gone", doc(map[string]fleet.Launch{"new": launch("two")}, "new", "new", "new"), []string{"a"}, map[string]string{"a": "", "b": "new", "c": "new"}},
	} {
		d := *c.now.Deploy
		image := func(e string) string {
			name := d.Engines[e].Launch
			if name == "" {
				name = d.Defaults.Launch
			}
			return d.Launch[name].Image
		}
		before := map[string]string{"a": image("a"), "b": image("b"), "c": image("c")}
		for i, e := range c.engines {
			put(&d, old, e, c.engines[:i], c.engines)
		}
		for e, name := range c.names {
			want := before[e]
			if slices.Contains(c.engines, e) {
				want = "one"
			}
			if d.Engines[e].Launch != name || image(e) != want {
				t.Errorf("%s: %s has launch %q with image %q, want %q with %q", c.what, e, d.Engines[e].Launch, image(e), name, want)
			}
		}
	}
}

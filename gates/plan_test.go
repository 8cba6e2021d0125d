package gates

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

func observing(id string, needs ...string) Step {
	return Step{ID: id, Host: "h1", Effect: Observe, Argv: []string{"true"}, Limit: second, Needs: needs}
}

func TestPlanValidation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Step)
		want   string // part of the error, "" = valid
	}{
		"good":             {func(*Step) {}, ""},
		"a script":         {func(s *Step) { s.Argv, s.Script = nil, "true" }, ""},
		"local":            {func(s *Step) { s.Argv, s.Host, s.Local = nil, "", &LocalCall{Op: "x"} }, ""},
		"no id":            {func(s *Step) { s.ID = "" }, "empty or used twice"},
		"id used twice":    {func(s *Step) { s.ID = "first" }, "empty or used twice"},
		"no action":        {func(s *Step) { s.Argv = nil }, "0 actions"},
		"two actions":      {func(s *Step) { s.Script = "true" }, "2 actions"},
		"file and fetch":   {func(s *Step) { s.Argv, s.File, s.Fetch = nil, &File{}, "/x" }, "2 actions"},
		"no limit":         {func(s *Step) { s.Limit = 0 }, "no time limit"},
		"a negative limit": {func(s *Step) { s.Limit = -1 }, "no time limit"},
		"no effect":        {func(s *Step) { s.Effect = "" }, `effect ""`},
		"another effect":   {func(s *Step) { s.Effect = "delete" }, `effect "delete"`},
		"no host":          {func(s *Step) { s.Host = "" }, "names no host"},
		"needs a later":    {func(s *Step) { s.Needs = []string{"last"} }, "not an earlier step"},
		"needs itself":     {func(s *Step) { s.Needs = []string{"middle"} }, "not an earlier step"},
		"needs nothing":    {func(s *Step) { s.Needs = []string{"none"} }, "not an earlier step"},
		"needs an earlier": {func(s *Step) { s.Needs = []string{"first"} }, ""},
	} {
		p := Plan{Gate: "X", Steps: []Step{observing("first"), observing("middle"), observing("last")}}
		c.change(&p.Steps[1])
		err := p.validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestPlanDigestFollowsContent(t *testing.T) {
	mk := func(change func(*Step)) string {
		s := Step{ID: "s", Host: "h1", Effect: Mutate, Argv: []string{"a", "b"}, Limit: second, Secrets: map[string]fleet.SecretRef{"Z": "env:Z", "A": "env:A", "M": "env:M"},
			Undo: &Undo{Argv: []string{"u"}, Limit: second}}
		change(&s)
		return Plan{Gate: "X", Steps: []Step{s}}.Digest()
	}
	same := mk(func(*Step) {})
	for range 20 {
		if mk(func(*Step) {}) != same {
			t.Fatal("the same plan has two digests")
		}
	}
	for name, change := range map[string]func(*Step){
		"argv":    func(s *Step) { s.Argv = []string{"a b"} },
		"host":    func(s *Step) { s.Host = "h2" },
		"effect":  func(s *Step) { s.Effect = Disrupt },
		"limit":   func(s *Step) { s.Limit++ },
		"undo":    func(s *Step) { s.Undo.Argv = []string{"v"} },
		"secrets": func(s *Step) { s.Secrets["A"] = "env:B" },
		"file":    func(s *Step) { s.Argv, s.File = nil, TextFile("/x", 0o600, []byte("y")) },
	} {
		if mk(change) == same {
			t.Errorf("another %s has the same digest", name)
		}
	}
	// A plan read back from the record is the same plan.
	p, _ := third{}.Plan(t.Context(), View{Fleet: testFleet(), Facts: map[string]string{"fleet/launch/e": "x"}, needs: map[record.Key]string{"C/launch/e": ""}})
	var back Plan
	if b, err := json.Marshal(p); err != nil || json.Unmarshal(b, &back) != nil || back.Digest() != p.Digest() || len(p.Steps) != 3 {
		t.Errorf("read back: %v, %s and %s", err, back.Digest(), p.Digest())
	}
}

func TestAsksAndMutates(t *testing.T) {
	p := func(effects ...Effect) Plan {
		var p Plan
		for _, e := range effects {
			p.Steps = append(p.Steps, Step{Effect: e})
		}
		return p
	}
	for _, c := range []struct {
		plan    Plan
		allow   []string
		mutates bool
		asks    bool
	}{
		{p(), nil, false, false},
		{p(Observe, Observe), nil, false, false},
		{p(Observe, Mutate), []string{"observe"}, true, true},
		{p(Observe, Mutate), []string{"observe", "mutate"}, true, false},
		{p(Mutate, Disrupt), []string{"mutate"}, true, true},
		{p(Mutate, Disrupt), []string{"disrupt", "mutate"}, true, false},
	} {
		if c.plan.Mutates() != c.mutates || c.plan.asks(c.allow) != c.asks {
			t.Errorf("%+v with %v: mutates %v, asks %v", c.plan.Steps, c.allow, c.plan.Mutates(), c.plan.asks(c.allow))
		}
	}
}

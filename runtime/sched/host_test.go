package sched

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// A prefill engine with little to do decodes what no decode engine can take.
func TestPrefillEnginesDecode(t *testing.T) {
	full := decoding(engine("d", model.Decode), 1000, many(104, 500)...)
	p, busy := decoding(engine("p", model.Prefill), 0), decoding(engine("q", model.Prefill), 1000, many(20, 500)...)
	with := func(e model.EngineView, change func(*model.EngineView)) model.EngineView { change(&e); return e }
	for name, c := range map[string]struct {
		engines []model.EngineView
		change  func(*model.Params)
		decode  string
		refused model.Reason
	}{
		"it has nothing to do":         {engines: []model.EngineView{p, full}, decode: "p"},
		"a decode engine has room":     {engines: []model.EngineView{p, full, engine("e", model.Decode)}, decode: "e"},
		"a short queue":                {engines: []model.EngineView{queued(p, 0.2), full}, decode: "p"},
		"a long queue":                 {engines: []model.EngineView{queued(p, 1), full}, refused: model.ReasonTPOT},
		"the one with the least":       {engines: []model.EngineView{busy, p, full}, decode: "p"},
		"some decode on it":            {engines: []model.EngineView{busy, full}, decode: "q"},
		"its batch takes half":         {engines: []model.EngineView{decoding(p, 1000, many(60, 500)...), full}, refused: model.ReasonTPOT},
		"it is pinned":                 {engines: []model.EngineView{with(p, func(e *model.EngineView) { e.Pinned = true }), full}, refused: model.ReasonTPOT},
		"it has failed the request":    {engines: []model.EngineView{with(p, func(e *model.EngineView) { e.ID = "bad" }), full}, refused: model.ReasonTPOT},
		"its residents are not known":  {engines: []model.EngineView{with(p, func(e *model.EngineView) { e.Later = nil }), full}, refused: model.ReasonTPOT},
		"roles are fixed":              {engines: []model.EngineView{p, full}, change: func(x *model.Params) { x.FixedRoles = true }, refused: model.ReasonTPOT},
		"engines do not lend":          {engines: []model.EngineView{p, full}, change: func(x *model.Params) { x.Lend = 0 }, refused: model.ReasonTPOT},
		"it stands in for decode":      {engines: []model.EngineView{p}, decode: "p"},
		"it stands in and is full too": {engines: []model.EngineView{decoding(p, 1000, many(104, 500)...)}, refused: model.ReasonTPOT},
	} {
		s := snapshot(c.engines...)
		s.Params.Lend = 0.1
		if c.change != nil {
			c.change(&s.Params)
		}
		r := request(500, 100)
		r.AvoidDecode = []string{"bad"}
		got := admit(s, r, 100)
		if got.Decode != c.decode || got.Refused != c.refused || got.Placed && c.decode != "e" && got.Prefill != got.Decode {
			t.Errorf("%s: %q to %q, refused %q, want %q and %q", name, got.Prefill, got.Decode, got.Refused, c.decode, c.refused)
		}
		seen := map[string]bool{}
		for _, d := range got.Decodes {
			if seen[d.Engine] {
				t.Errorf("%s: %s stands twice among the decode sides", name, d.Engine)
			}
			seen[d.Engine] = true
		}
	}
}

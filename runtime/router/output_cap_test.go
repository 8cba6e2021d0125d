package router

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// An idle fleet refuses no output cap for its size: engines cut it to their context, and what they
// do not take as an integer they refuse in their own words.
func TestOutputCapsOnAnIdleFleet(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, func(_ int, c *simulated.Config) { c.DecodeF, c.MaxModelLen = 1e-6, 128 }, steered, func(c *Config) { c.Fleet.SLO.TPOTS = 0.02 })
	says := func(a answer) string {
		var e struct{ Error struct{ Message string } }
		_ = json.Unmarshal([]byte(a.body), &e)
		return strings.ReplaceAll(e.Error.Message, "\n", " ")
	}
	for _, c := range []struct {
		value  string
		status int
		own    string // the router's words; "" = the engine's
	}{
		{"1", 200, ""}, {"127", 200, ""}, {"200000", 200, ""}, {"1000000", 200, ""}, {"1000000000", 200, ""}, {"10000000000000", 200, ""}, {"null", 200, ""},
		{"9223372036854775807", 400, ""}, {"9223372036854775808", 400, ""}, {"1" + strings.Repeat("0", 23), 400, ""}, {"0", 400, ""}, {"-1", 400, ""},
		{"1e23", 400, "max_tokens must be an integer"}, {"1.5", 400, "max_tokens must be an integer"}, {`"5"`, 400, "max_tokens must be an integer"},
	} {
		body := `{"model":"` + modelName + `","prompt":"hi","temperature":0,"max_tokens":` + c.value + `}`
		got, engine := b.complete(body), post(t, limit(t), b.engine("d0").URL()+"/v1/completions", body)
		if got.status != c.status {
			t.Errorf("%s: %d %s", c.value, got.status, got.body)
			continue
		}
		switch {
		case c.status == 200:
			if x, y := text(t, got.body), text(t, engine.body); x != y {
				t.Errorf("%s: %q, the engine alone says %q", c.value, x, y)
			}
		case c.own != "" && says(got) != c.own, c.own == "" && (engine.status != c.status || says(got) != says(engine)):
			t.Errorf("%s: %s; the engine alone says %d %s", c.value, got.body, engine.status, engine.body)
		}
	}
	for _, r := range b.rows() {
		var d replay.Decision
		if len(r.Decision) == 0 || r.WantedLen == 0 {
			continue
		}
		if err := json.Unmarshal(r.Decision, &d); err != nil || d.Inputs.Request.Expected > 127 {
			t.Errorf("a cap of %d lets the scheduler expect %d tokens (%v)", r.WantedLen, d.Inputs.Request.Expected, err)
		}
	}
	if r, err := replay.Path(b.journal); err != nil || r.Differ > 0 || r.Placements < 12 || r.Without > 0 {
		t.Errorf("replayed %+v, %v", r, err)
	}
}

func TestReachableOutput(t *testing.T) {
	told := func(context, capacity, box int) *node {
		return &node{known: true, facts: facts{context: context}, curve: profile.Curve{KVCapacity: capacity, MaxKVTokens: box}}
	}
	var set settings
	set.Fleet.Engine.CharsPerToken = 4
	for _, c := range []struct {
		name   string
		nodes  []*node
		wanted int
		exact  int // length of the prompt; 0 = estimated from 400 characters
		want   int
	}{
		{"no cap", []*node{told(1000, 0, 0)}, 0, 100, 0},
		{"within the context", []*node{told(1000, 0, 0)}, 900, 100, 900},
		{"beyond it", []*node{told(1000, 0, 0)}, 901, 100, 900},
		{"the widest engine", []*node{told(1000, 0, 0), told(2000, 0, 0)}, 1 << 31, 100, 1900},
		{"an estimated prompt", []*node{told(1000, 0, 0)}, 1 << 31, 0, 900},
		{"a prompt that fills it", []*node{told(1000, 0, 0)}, 1 << 31, 5000, 1},
		{"no engine tells its context: the cache", []*node{told(0, 3000, 2000)}, 1 << 31, 100, 2900},
		{"nor its cache: what was measured", []*node{told(0, 0, 2000)}, 1 << 31, 100, 1900},
		{"one engine does not: the cache of the other", []*node{told(1000, 0, 0), told(0, 3000, 0)}, 1 << 31, 100, 2900},
		{"nothing is known", []*node{told(0, 0, 0)}, 1 << 31, 100, 1 << 31},
	} {
		q := &request{r: &Router{set: set}, call: &call{wanted: c.wanted, runes: 400, prompts: 1}, longest: c.exact}
		if got := q.reachable(&owner{nodes: c.nodes}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

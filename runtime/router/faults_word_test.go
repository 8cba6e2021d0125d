package router

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// spoilt is one handoff that must never become a wrong word. old is the handoff of an earlier
// prompt, other that of another engine.
type spoilt struct {
	name  string
	spoil func(h, old, other map[string]json.RawMessage)
	blind bool // every field agrees with what the router knows
}

func set(field, value string) func(h, _, _ map[string]json.RawMessage) {
	return func(h, _, _ map[string]json.RawMessage) { h[field] = json.RawMessage(value) }
}

// blocksOf replaces the list of block numbers.
func blocksOf(f func([]int) []int) func(h, _, _ map[string]json.RawMessage) {
	return func(h, _, _ map[string]json.RawMessage) {
		var groups [][]int
		if json.Unmarshal(h["remote_block_ids"], &groups) == nil {
			groups[0] = f(groups[0])
			h["remote_block_ids"], _ = json.Marshal(groups)
		}
	}
}

// handoffFields are the members of a handoff whose loss a router can see.
var handoffFields = []string{"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host",
	"remote_port", "tp_size", "dcp_size", "pp_size", "remote_num_tokens", "transfer_mode"}

func spoiltHandoffs() []spoilt {
	list := []spoilt{
		{name: "replayed, equal length", spoil: func(h, old, _ map[string]json.RawMessage) { maps.Copy(h, old) }},
		{name: "replayed blocks", spoil: func(h, old, _ map[string]json.RawMessage) { h["remote_block_ids"] = old["remote_block_ids"] }, blind: true},
		{name: "foreign", spoil: func(h, _, other map[string]json.RawMessage) { maps.Copy(h, other) }},
		{name: "foreign engine id", spoil: func(h, _, other map[string]json.RawMessage) { h["remote_engine_id"] = other["remote_engine_id"] }},
		{name: "foreign port", spoil: func(h, _, other map[string]json.RawMessage) { h["remote_port"] = other["remote_port"] }},
		{name: "foreign port and engine id", spoil: func(h, _, other map[string]json.RawMessage) {
			h["remote_port"], h["remote_engine_id"] = other["remote_port"], other["remote_engine_id"]
		}},
		{name: "one block less", spoil: blocksOf(func(b []int) []int { return b[1:] })},
		{name: "one block more", spoil: blocksOf(func(b []int) []int { return append(b, 7) })},
		{name: "blocks in another order", spoil: blocksOf(func(b []int) []int { slices.Reverse(b); return b }), blind: true},
		{name: "a block that is none", spoil: blocksOf(func(b []int) []int { b[0] = 1 << 30; return b })},
		{name: "flat list", spoil: set("remote_block_ids", "[1,2,3,4,5,6,7]")},
		{name: "empty list", spoil: set("remote_block_ids", "[]")},
		{name: "empty group", spoil: set("remote_block_ids", "[[]]")},
		{name: "a second group", spoil: set("remote_block_ids", "[[],[1,2,3,4,5,6,7]]")},
		{name: "one token more", spoil: set("remote_num_tokens", "97")},
		{name: "one token less", spoil: set("remote_num_tokens", "95")},
		{name: "tokens as a float", spoil: set("remote_num_tokens", "96.5")},
		{name: "pushed", spoil: set("transfer_mode", `"push"`)},
		{name: "not turned round", spoil: set("do_remote_decode", "true")},
		{name: "a dead port", spoil: set("remote_port", "1")},
		{name: "another host", spoil: set("remote_host", `"127.0.0.9"`)},
	}
	for _, f := range handoffFields {
		list = append(list, spoilt{name: "without " + f, spoil: func(h, _, _ map[string]json.RawMessage) { delete(h, f) }},
			spoilt{name: "null " + f, spoil: set(f, "null")}, spoilt{name: "list " + f, spoil: set(f, `["x"]`)}, spoilt{name: "object " + f, spoil: set(f, `{"x":1}`)})
	}
	return list
}

// promptIDs is a prompt of 96 tokens of its own: six blocks that no cache holds.
func promptIDs(seed int) []int {
	list := make([]int, 96)
	for i := range list {
		list[i] = 100 + (seed*131+i*17)%3000
	}
	return list
}

func TestFaultsNeverAWrongWord(t *testing.T) {
	t.Parallel()
	settles(t)
	var mid, far between
	b := startFleet(t, 2, 2, shortHandshake, steered, patience(5), proxied(t, &mid, "p0"), proxied(t, &far, "p1"), func(c *Config) {
		c.Fleet.Recovery.EjectAfter, c.Fleet.Serving.RetryBudget = 1<<20, 1<<20
	})
	var old, other map[string]json.RawMessage
	far.when(func(a []byte) []byte { other = handoffOf(a); return a })
	for i, c := range append([]spoilt{{name: "whole", spoil: func(_, _, _ map[string]json.RawMessage) {}}}, spoiltHandoffs()...) {
		ask := map[string]any{"prompt": promptIDs(i), "max_tokens": 8, "ignore_eos": true, "temperature": 0, "stream": i%2 == 0}
		want := b.unsplit("p1", ask)
		mid.when(func(a []byte) []byte {
			h := handoffOf(a)
			real := maps.Clone(h)
			if i > 0 {
				c.spoil(h, old, other)
			}
			if old == nil {
				old = real
			}
			return withHandoff(a, h)
		})
		s := watch(long(t), b.client(), b.url, ask, "word-"+strconv.Itoa(i), nil)
		err := s.right(want, i%2 == 0)
		if c.blind {
			err = nil
		}
		if st := b.engine("d0").State(); st.Dead {
			t.Fatalf("%s: the decode engine died of it", c.name)
		}
		judge(t, "never a wrong word/"+c.name, err, b.settle())
		if other == nil { // the other engine's handoff is needed from the second case on
			b.introduce("p1")
		}
	}
}

// Before a router has seen any handoff of an engine, it cannot tell its name from another's.
func TestFaultsForeignFirstHandoff(t *testing.T) {
	t.Parallel()
	settles(t)
	var mid, far between
	b := startFleet(t, 2, 2, shortHandshake, steered, patience(5), proxied(t, &mid, "p0"), proxied(t, &far, "p1"))
	var other map[string]json.RawMessage
	far.when(func(a []byte) []byte { other = handoffOf(a); return a })
	b.introduce("p1")
	mid.when(func(a []byte) []byte { return withHandoff(a, other) })
	ask := map[string]any{"prompt": promptIDs(1), "max_tokens": 8, "ignore_eos": true, "temperature": 0}
	want := b.unsplit("p1", ask)
	s := watch(long(t), b.client(), b.url, ask, "", nil)
	judge(t, "never a wrong word/another engine's first handoff", s.right(want, false), b.settle())
}

// settle lets unread handoffs go and waits for rest.
func (b *testbed) settle() error {
	for _, e := range b.engines {
		_ = e.Inject(simulated.Injection{Kind: "expire"})
	}
	return b.idle()
}

// introduce sends a first leg to an engine, which is what the router would send.
func (b *testbed) introduce(iid string) {
	b.t.Helper()
	for _, e := range b.router.set.Fleet.Engines {
		if e.IID != iid {
			continue
		}
		a := post(b.t, limit(b.t), e.URL+"/v1/completions", map[string]any{"prompt": promptIDs(9999), "max_tokens": 1, "kv_transfer_params": map[string]any{"do_remote_decode": true}})
		if a.status != 200 || len(handoffOf([]byte(a.body))) == 0 {
			b.t.Fatal(fmt.Sprint("no handoff of ", iid, ": ", a.body))
		}
	}
}

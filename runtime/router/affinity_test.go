package router

import (
	"fmt"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
)

// costly is an engine whose prefills and transfers take longer than a test's own noise.
func costly() fleet.Simulated {
	s := quick()
	s.PrefillB, s.TransferS = 5e-5, 0.02
	return s
}

func withAffinity(lend float64) tweak {
	return func(c *Config) { c.PrefixAffinity, c.LendFrom = true, lend }
}

// vacant waits until nobody holds a seat.
func (b *testbed) vacant() {
	b.t.Helper()
	eventually(b.t, "nobody is resident", func() (idle bool) {
		b.router.own.do(func() {
			idle = true
			for _, n := range b.router.own.nodes {
				idle = idle && len(n.prefilling)+len(n.pending)+len(n.decoding) == 0
			}
		})
		return idle
	})
}

// words is a text of about n bytes that depends on its name.
func words(name string, n int) string {
	var s strings.Builder
	for i := 0; s.Len() < n; i++ {
		fmt.Fprintf(&s, "%s %d ", name, i)
	}
	return s.String()
}

// converse holds a conversation of five turns and returns their rows.
func converse(t *testing.T, tweaks ...tweak) []journal.Row {
	b := startBed(t, 2, 2, costly(), tweaks...)
	talk := []map[string]string{{"role": "user", "content": words("history", 5000)}}
	for turn := range 5 {
		a := post(t, limit(t), b.url+"/v1/chat/completions", map[string]any{"model": modelName, "messages": talk, "max_tokens": 4, "temperature": 0})
		if a.status != 200 {
			t.Fatalf("turn %d: %d %s", turn, a.status, a.body)
		}
		b.vacant()
		talk = append(talk, map[string]string{"role": "assistant", "content": text(t, a.body)}, map[string]string{"role": "user", "content": words(fmt.Sprint("turn", turn), 100)})
	}
	return b.rows()
}

func TestAConversationReturnsToItsHistory(t *testing.T) {
	rows := converse(t, withAffinity(0.1))
	whole := 0
	held := map[string]bool{*rows[0].Prefill: true, *rows[0].Decode: true}
	for i, r := range rows[1:] {
		if !held[*r.Prefill] || r.CachePlacement == nil || r.CachePlacement.Placed != *r.Prefill || r.CachePlacement.Cold <= r.CachePlacement.Predicted || r.CachePlacement.ColdChoice == nil {
			t.Errorf("turn %d went to %s (%v hold it): %+v", i+1, *r.Prefill, held, r.CachePlacement)
		}
		// Believed in whole chunks, so never more than a chunk and a block more than there was.
		if had := r.CachedTokens[*r.Prefill]; had < r.InputLen*3/4 || r.CachePlacement != nil && r.CachePlacement.Cached > had+prefix.Chunk {
			t.Errorf("turn %d: %d of %d tokens were there: %+v", i+1, had, r.InputLen, r.CachePlacement)
		}
		if !r.Crossed {
			whole++
		}
		held[*r.Prefill], held[*r.Decode] = true, true
	}
	if whole == 0 || rows[1].Crossed {
		t.Errorf("%d of 4 turns ran whole, the second one crossed: %v", whole, rows[1].Crossed)
	}
	if rows[0].CachePlacement != nil {
		t.Errorf("the first turn: %+v", rows[0].CachePlacement)
	}
}

func TestWithoutAffinityNobodyRemembers(t *testing.T) {
	for i, r := range converse(t, func(c *Config) { c.PrefixAffinity, c.LendFrom = false, 0.1 }) {
		if r.CachePlacement != nil || !r.Crossed || r.Prefill == r.Decode {
			t.Errorf("turn %d: %v→%v %+v", i, *r.Prefill, *r.Decode, r.CachePlacement)
		}
	}
}

func TestWhoseLendingIsOffCrosses(t *testing.T) {
	for i, r := range converse(t, withAffinity(0)) {
		if !r.Crossed || i > 0 && r.CachePlacement == nil {
			t.Errorf("turn %d: crossed %v %+v", i, r.Crossed, r.CachePlacement)
		}
	}
}

func TestSaltsShareNothing(t *testing.T) {
	b := startBed(t, 1, 1, costly(), withAffinity(0))
	ask := func(salt string) {
		if a := b.complete(map[string]any{"prompt": words("x", 4000), "max_tokens": 2, "cache_salt": salt}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		b.vacant()
	}
	for _, salt := range []string{"a", "b", "a"} {
		ask(salt)
	}
	rows := b.rows()
	for i, want := range []bool{false, false, true} {
		if got := rows[i].CachePlacement != nil; got != want || rows[i].CachedTokens["p0"] > 0 != want {
			t.Errorf("request %d: %+v, %v", i, rows[i].CachePlacement, rows[i].CachedTokens)
		}
	}
}

func TestANewProcessHoldsNothing(t *testing.T) {
	b := startBed(t, 1, 1, costly(), withAffinity(0), func(c *Config) { c.Fleet.Recovery.ReadmitEvery = 1 << 20 })
	if a := b.complete(map[string]any{"prompt": words("x", 4000), "max_tokens": 2}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.vacant()
	chunks := func(iid string) (n int) {
		b.router.own.do(func() { n = b.router.own.node(iid).prefixes.Len() })
		return n
	}
	if p, d := chunks("p0"), chunks("d0"); p == 0 || p != d {
		t.Fatalf("%d and %d chunks", p, d)
	}
	b.restart("p0")
	b.complete(map[string]any{"prompt": words("x", 4000), "max_tokens": 2}) // whose handoff gives the new process away
	eventually(t, "the index of p0 is empty", func() bool { return chunks("p0") == 0 })
	if chunks("d0") == 0 {
		t.Error("d0 lost its prompts")
	}
}

// An engine without a cache is found out by what it tells.
func TestAWrongBeliefIsTrimmed(t *testing.T) {
	s := costly()
	s.PrefixCaching = false
	b := startBed(t, 1, 1, s, withAffinity(0))
	limit := 0
	for i, want := range []int{1, 0} { // of p0, after each request
		if a := b.complete(map[string]any{"prompt": words("x", 4000), "max_tokens": 2}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		b.vacant()
		b.router.own.do(func() {
			n := b.router.own.node("p0")
			if min(1, n.prefixes.Len()) != want {
				t.Errorf("request %d: %d chunks", i, n.prefixes.Len())
			}
			if i == 0 {
				limit = n.prefixes.Limit()
			} else if n.prefixes.Limit() >= limit || n.believed == 0 || n.confirmed != 0 {
				t.Errorf("limit %d of %d, believed %d, confirmed %d", n.prefixes.Limit(), limit, n.believed, n.confirmed)
			}
		})
	}
	if rows := b.rows(); rows[1].CachePlacement == nil {
		t.Error("nothing was believed")
	}
}

// Both legs of a pair run at once, and streams of this dialect do not tell what was cached.
func TestSGLangPrefillsWhereTheHistoryIs(t *testing.T) {
	b := sglangBed(t, "prefill", "prefill", "decode")
	for range 3 {
		if a := b.complete(map[string]any{"prompt": words("x", 6000), "max_tokens": 2}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		b.idleSoon()
		b.vacant()
	}
	eventually(t, "the engines say that two prompts were there", func() bool {
		held := 0.0
		b.router.own.do(func() {
			for _, n := range b.router.own.nodes[:2] {
				if n.counters != nil {
					held += n.counters.LocalHit
				}
			}
		})
		return held > 6000
	})
	rows := b.rows()
	for i, r := range rows[1:] {
		if *r.Prefill != *rows[0].Prefill || r.CachePlacement == nil || !r.Crossed {
			t.Errorf("request %d: %s→%s: %+v", i+1, *r.Prefill, *r.Decode, r.CachePlacement)
		}
	}
}

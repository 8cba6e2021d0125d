package router

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// A pair over which no KV goes is left out although both of its engines are well with others, and comes back
// when KV goes over it again.
func TestBrokenPairIsLeftOut(t *testing.T) {
	often := func(c *Config) { unswept(c); c.Fleet.Recovery.EjectAfter, c.Fleet.Serving.RetryBudget = 2, 1000 }
	for name, start := range map[string]func() *testbed{
		"vllm": func() *testbed { return startBed(t, 2, 2, quick(), still, often) },
		"sglang": func() *testbed {
			return sglangBedOf(t, func(c *Config) { often(c); c.Fleet.Engine.FirstTokenTimeoutS = 2 }, "prefill", "prefill", "decode", "decode")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start()
			o := b.router.own
			p, d := o.nodes[0], o.nodes[2]
			b.inject(d.id, simulated.Injection{Kind: "read-failure", From: b.engine(p.id).SidePort(), Count: -1})
			n := 0
			ask := func() {
				n++
				if a := b.complete(map[string]any{"prompt": words(fmt.Sprint(n), 40), "max_tokens": 2}); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			eventually(t, "the pair is barred", func() (ok bool) {
				ask()
				o.do(func() { ok = o.isBarred(edge{p, d}) })
				return ok
			})
			before := n
			for range 20 {
				ask()
			}
			o.do(func() {
				for _, m := range o.nodes {
					if m.ejected != "" || m.hold != nil {
						t.Errorf("%s is out: %q", m.id, m.ejected)
					}
				}
				if len(o.barredState()) != 1 {
					t.Errorf("barred %v", o.barredState())
				}
			})
			b.inject(d.id, simulated.Injection{Kind: "clear"})
			b.router.retryBarred()
			eventually(t, "the pair is back", func() (ok bool) {
				o.do(func() { ok = !o.isBarred(edge{p, d}) && len(o.barred()) == 0 })
				return ok
			})
			for i, r := range b.rows() {
				if i >= before && r.Attempts > 1 {
					t.Errorf("request %d of %d took another attempt: %v", i, n, r.Failures)
				}
			}
			var seen []string
			readEvents(t, b.journal, func(e journal.Event) {
				if e.Name == "pair_barred" || e.Name == "pair_restored" {
					seen = append(seen, e.Name)
					if e.Fields["producer"] != p.id || e.Fields["consumer"] != d.id {
						t.Errorf("%v", e.Fields)
					}
				}
			})
			if !slices.Equal(seen, []string{"pair_barred", "pair_restored"}) {
				t.Errorf("events %q", seen)
			}
		})
	}
}

// Where no decode engine reads the KV of a prefill engine, that engine is the one that is out, until one does.
func TestAllPairsOfAnEngineAreItsFault(t *testing.T) {
	b := startBed(t, 2, 2, quick(), still, func(c *Config) {
		c.Fleet.Recovery.EjectAfter, c.Fleet.Recovery.ReadmitEvery, c.Fleet.Serving.RetryBudget = 2, 1, 1000
	})
	o := b.router.own
	for _, d := range []string{"d0", "d1"} {
		b.inject(d, simulated.Injection{Kind: "read-failure", From: b.engine("p0").SidePort(), Count: -1})
	}
	n := 0
	out := func() (cause string) {
		o.do(func() { cause = o.node("p0").ejected })
		return cause
	}
	eventually(t, "p0 is out", func() bool {
		n++
		if a := b.complete(map[string]any{"prompt": words(fmt.Sprint(n), 40), "max_tokens": 2}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return out() != ""
	})
	if cause := out(); cause != causeInference {
		t.Errorf("ejected as %q", cause)
	}
	if _, err := b.router.retestEjected(limit(t), o.nodes[0], nil); !errors.Is(err, errMute) {
		t.Errorf("asked again: %v", err)
	}
	b.inject("d1", simulated.Injection{Kind: "clear"})
	eventually(t, "p0 is back", func() bool { return out() == "" })
	b.inject("d0", simulated.Injection{Kind: "clear"})
	eventually(t, "all pairs are back", func() (ok bool) {
		o.do(func() { ok = len(o.barredState()) == 0 })
		return ok
	})
	o.do(func() {
		for _, m := range o.nodes {
			if m.ejected != "" || m.hold != nil {
				t.Errorf("%s is out: %q", m.id, m.ejected)
			}
		}
	})
}

// formerBed has engines of which each decode engine keeps a former address of e0, and a router that does not know.
func formerBed(t *testing.T, change tweak) *testbed {
	b := sglangBedOf(t, change, "prefill", "prefill", "decode", "decode")
	o := b.router.own
	move := func(to model.Role, prefill int) {
		t.Helper()
		o.do(func() { o.move(control.Move{Engine: "e0", To: to, By: control.ByReactive}, o.now()) })
		eventually(t, "the role is switched", func() bool { return len(b.state().Pools["prefill"]) == prefill })
	}
	for _, d := range o.nodes[2:] {
		if c := b.router.send(limit(t), edge{o.nodes[0], d}); !c.passed() {
			t.Fatalf("e0 to %s: %v, %v", d.id, c.produce, c.consume)
		}
	}
	move(model.Decode, 1)
	o.do(func() {
		for _, m := range o.nodes {
			clear(m.keeps) // as one that was started now
		}
	})
	move(model.Prefill, 2)
	return b
}

// A router that does not know who met whom finds out: decode engines that keep a former address of a
// prefill engine are made to forget it.
func TestFormerAddressesAreForgotten(t *testing.T) {
	b := formerBed(t, func(c *Config) {
		unswept(c)
		c.Fleet.Recovery.EjectAfter, c.Fleet.Recovery.ReadmitEvery, c.Fleet.Serving.RetryBudget, c.Fleet.Engine.FirstTokenTimeoutS = 1, 1, 1000, 3
	})
	o := b.router.own
	n := 0
	known := func() (all bool) {
		o.do(func() {
			all = len(o.edges) == 0
			for _, m := range o.nodes {
				all = all && m.ejected == "" && m.hold == nil
			}
		})
		return all
	}
	eventually(t, "a pair is barred", func() (barred bool) {
		n++
		// None may decode while both are asked what they suffer from.
		if a := b.complete(map[string]any{"prompt": words(fmt.Sprint(n), 40), "max_tokens": 2}); a.status != 200 && a.status != 503 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		o.do(func() {
			for e := range o.edges {
				barred = barred || o.isBarred(e)
			}
		})
		return barred
	})
	eventually(t, "everybody is back", known)
	for _, d := range o.nodes[2:] {
		if c := b.router.send(limit(t), edge{o.nodes[0], d}); !c.passed() {
			t.Errorf("e0 to %s: %v, %v", d.id, c.produce, c.consume)
		}
	}
}

// A prefill engine that is out since nobody reads its KV comes back, though every decode engine keeps a former address.
func TestFormerAddressesKeepNobodyOut(t *testing.T) {
	b := formerBed(t, func(c *Config) {
		unswept(c)
		c.Fleet.Engine.FirstTokenTimeoutS = 1
	})
	o := b.router.own
	o.do(func() {
		for _, d := range o.nodes[2:] {
			o.bar(edge{o.nodes[0], d}, crossing{consume: errProbeStream})
		}
		if o.nodes[0].ejected == "" {
			t.Error("not ejected")
		}
	})
	eventually(t, "somebody reads its KV", func() (ok bool) {
		b.router.retryBarred()
		o.do(func() { ok = !o.mute(o.nodes[0]) })
		return ok
	})
}

// What is barred is used where nothing else is left, and forgotten with a process.
func TestBarsLeaveAPair(t *testing.T) {
	o := newOwner(&settings{Config: Config{Logger: slog.New(slog.DiscardHandler)}}, []*node{{id: "p0", role: model.Prefill}, {id: "p1", role: model.Prefill}, {id: "d0", role: model.Decode}}, time.Now(), "")
	p0, p1, d0 := o.nodes[0], o.nodes[1], o.nodes[2]
	o.edges[edge{p0, d0}] = &strain{barred: true}
	if got := o.barred(); !slices.Equal(got, []model.Edge{{Prefill: 0, Decode: 2}}) {
		t.Errorf("%v", got)
	}
	p1.ejected = causeHealth
	if got := o.barred(); got != nil {
		t.Errorf("with one pair left: %v", got)
	}
	p1.ejected = ""
	o.strange(d0)
	if len(o.edges) != 0 || o.barred() != nil {
		t.Errorf("%v", o.edges)
	}
}

// What happens to the engines in the moment in which a decode engine takes the other role leaves no engine
// between, and no request without an answer.
func TestTurnsThatBreak(t *testing.T) {
	for name, c := range map[string]struct {
		before func(b *testbed)
		during func(b *testbed, d *node)
	}{
		"the switch breaks": {before: func(b *testbed) { b.inject("e2", simulated.Injection{Kind: "switch-failure"}) }},
		"the decode engine dies": {during: func(b *testbed, d *node) {
			b.inject(d.id, simulated.Injection{Kind: "kill"})
		}},
		"the prefill engine dies": {during: func(b *testbed, _ *node) { b.inject("e0", simulated.Injection{Kind: "kill"}) }},
		"the decode engine hangs": {during: func(b *testbed, d *node) { b.inject(d.id, simulated.Injection{Kind: "freeze"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := sglangBedOf(t, func(c *Config) {
				c.Fleet.Recovery.LivenessEvery, c.Fleet.Recovery.LivenessMisses, c.Fleet.Engine.HealthTimeoutS = 1, 1, 1
			}, "prefill", "prefill", "decode", "decode", "decode")
			o := b.router.own
			move := func(to model.Role) {
				o.do(func() { o.move(control.Move{Engine: "e0", To: to, By: control.ByReactive}, o.now()) })
			}
			settled := func() (ok bool) {
				o.do(func() {
					ok = !slices.ContainsFunc(o.nodes, func(n *node) bool { return n.switching && n.ejected == "" })
				})
				return ok
			}
			o.do(func() {
				for _, d := range o.nodes[2:] {
					o.acquaint(o.nodes[0], d)
				}
			})
			move(model.Decode)
			eventually(t, "it decodes", func() bool { return settled() && len(b.state().Pools["prefill"]) == 1 })
			if c.before != nil {
				c.before(b)
			}
			move(model.Prefill)
			if c.during != nil {
				eventually(t, "a decode engine is turned", func() bool {
					var d *node
					o.do(func() {
						if i := slices.IndexFunc(o.nodes[2:], func(n *node) bool { return n.switching }); i >= 0 {
							d = o.nodes[2+i]
						}
					})
					if d != nil {
						c.during(b, d)
					}
					return d != nil || settled()
				})
			}
			eventually(t, "nobody is between two roles", settled)
			for i := range 12 {
				if a := b.complete(map[string]any{"prompt": words(fmt.Sprint(i), 20), "max_tokens": 2}); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
}

package router

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// still is a router that neither sweeps nor readmits by itself.
func still(c *Config) {
	unswept(c)
	for i := range c.Fleet.Engines {
		c.Fleet.Engines[i].Pin = true
	}
}

// probesOf lists an engine's inference probes: outcome, recorded producer, producer.
func (b *testbed) probesOf(iid string) (list []string) {
	b.stop()
	readEvents(b.t, b.journal, func(e journal.Event) {
		if e.Name == "engine_probe" && e.Fields["iid"] == iid && e.Fields["kind"] == probeInference {
			word := func(k string) string {
				if s, ok := e.Fields[k].(string); ok {
					return s
				}
				return "-"
			}
			list = append(list, strings.Join([]string{word("outcome"), word("recorded_producer"), word("producer")}, " "))
		}
	})
	return list
}

// Every recorded path is tried again; what stands in for a producer that is gone is tried
// once; and a failed producer says nothing about the suspect.
func TestSuspectsPathsAreRetested(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources []string
		gone    []string
		inject  map[string]simulated.Injection
		probes  []string
		cause   string
		held    bool
	}{
		{"alone", []string{""}, nil, nil, []string{"passed - -"}, "", false},
		{"each producer", []string{"p0", "p1"}, nil, nil, []string{"passed p0 p0", "passed p1 p1"}, "", false},
		{"alone and a producer", []string{"", "p1"}, nil, nil, []string{"passed - -", "passed p1 p1"}, "", false},
		{"a producer that is gone", []string{"p0"}, []string{"p0"}, nil, []string{"passed p0 p1"}, "", false},
		{"two with one stand-in", []string{"p0", "p1"}, []string{"p0"}, nil, []string{"passed p0 p1"}, "", false},
		{"no producer is left", []string{"p0"}, []string{"p0", "p1"}, nil, []string{"passed p0 -"}, "", false},
		{"its read fails", []string{"p0", "p1"}, nil, map[string]simulated.Injection{"d0": {Kind: "read-failure", Count: -1}}, []string{"failed p0 p0"}, causeInference, false},
		{"the read of one of them fails", []string{"p0", "p1"}, nil, map[string]simulated.Injection{"d0": {Kind: "read-failure", Count: -1, From: -1}}, []string{"pair_failed p0 p0", "passed p1 p1"}, "", false},
		{"the producer fails", []string{"p0"}, nil, map[string]simulated.Injection{"p0": {Kind: "leg1-status", Status: 500, Count: 1}}, []string{"producer_failed p0 p0"}, "", true},
		{"one of two fails", []string{"p0", "p1"}, nil, map[string]simulated.Injection{"p0": {Kind: "drop-handoff", Count: 1}}, []string{"producer_failed p0 p0", "passed p1 p1"}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBed(t, 2, 2, quick(), still)
			o := b.router.own
			n := o.node("d0")
			o.do(func() {
				for _, s := range c.sources {
					o.quarantine(n, holdInference, s)
				}
				for _, p := range c.gone {
					o.eject(o.node(p), causeHealth)
				}
			})
			for iid, in := range c.inject {
				if in.From < 0 {
					in.From = b.engine("p0").SidePort()
				}
				b.inject(iid, in)
			}
			b.router.interrogate(n, probeInference)
			b.heard()
			o.do(func() {
				if n.ejected != c.cause || (n.hold != nil) != c.held || len(n.sources) > 0 != (c.held || c.cause != "") || n.verifying != "" {
					t.Errorf("ejected %q, hold %v, sources %v", n.ejected, n.hold, n.sources)
				}
				if p0 := o.node("p0"); c.held && p0.streak[classInference]+p0.streak[classHandoff] != 1 {
					t.Errorf("the producer's strikes %v", p0.streak)
				}
			})
			if got := b.probesOf("d0"); !slices.Equal(got, c.probes) {
				t.Errorf("probes %q, want %q", got, c.probes)
			}
		})
	}
}

// An open suspicion is probed again every round, and an ejected suspect returns only after
// its paths have passed.
func TestSuspicionIsProbedUntilItEnds(t *testing.T) {
	b := startBed(t, 1, 2, quick(), still, func(c *Config) { c.Fleet.Recovery.ReadmitEvery = 1 })
	o := b.router.own
	b.inject("p0", simulated.Injection{Kind: "leg1-status", Status: 429, Count: 2})
	o.do(func() { o.quarantine(o.node("d0"), holdInference, "p0") })
	eventually(t, "the hold ends", func() (ok bool) {
		o.do(func() { ok = o.node("d0").hold == nil && o.node("d0").ejected == "" })
		return ok
	})
	b.inject("d1", simulated.Injection{Kind: "read-failure", Count: 2})
	o.do(func() {
		o.node("d1").suspect("p0")
		o.eject(o.node("d1"), causeInference)
	})
	eventually(t, "d1 is back", func() (ok bool) {
		o.do(func() { ok = o.node("d1").ejected == "" })
		return ok
	})
	if got := b.probesOf("d0"); !slices.Equal(got, []string{"producer_failed p0 p0", "producer_failed p0 p0", "passed p0 p0"}) {
		t.Errorf("d0: %q", got)
	}
	evidence := ""
	readEvents(t, b.journal, func(e journal.Event) {
		if e.Name == "engine_readmitted" && e.Fields["iid"] == "d1" {
			evidence, _ = e.Fields["evidence"].(string)
		}
	})
	if evidence != "verification" {
		t.Errorf("evidence %q", evidence)
	}
}

// Where both legs run at once a suspect is paired with a live engine of the other role.
func TestSGLangSuspects(t *testing.T) {
	failing := simulated.Injection{Kind: "status", Status: 500, Count: 1}
	for _, c := range []struct {
		suspect, fails, gone string
		outcome              string
		fields               map[string]string
	}{
		{"e0", "", "", outcomePassed, map[string]string{"consumer": "e1"}},
		{"e1", "", "", outcomePassed, map[string]string{"producer": "e0"}},
		{"e0", "e0", "", outcomeFailed, map[string]string{"consumer": "e1", "prefill_class": classInference}},
		{"e1", "e1", "", outcomeFailed, map[string]string{"producer": "e0", "decode_class": classInference}},
		{"e1", "e0", "", outcomeProducer, map[string]string{"producer": "e0", "producer_class": classInference, "prefill_class": classInference}},
		{"e0", "e1", "", outcomeConsumer, map[string]string{"consumer": "e1", "consumer_class": classInference, "decode_class": classInference}},
		{"e0", "", "e1", outcomeUnavailable, map[string]string{"reason": "no_consumer"}},
		{"e1", "", "e0", outcomeUnavailable, map[string]string{"reason": "no_producer"}},
	} {
		t.Run(fmt.Sprintf("%s fails %s gone %s", c.suspect, c.fails, c.gone), func(t *testing.T) {
			b := sglangBed(t, "prefill", "decode")
			o := b.router.own
			o.do(func() {
				if c.gone != "" {
					o.eject(o.node(c.gone), causeSwitch)
				}
			})
			if c.fails != "" {
				b.inject(c.fails, failing)
			}
			var list []path
			o.do(func() { list = o.paths(o.node(c.suspect)) })
			if len(list) != 1 {
				t.Fatalf("%d paths", len(list))
			}
			v := b.router.try(t.Context(), o.node(c.suspect), list[0])
			f := v.fields(o.node(c.suspect))
			noted("engine_probe", f)
			raw, _ := json.Marshal(f)
			for k, want := range c.fields {
				if f[k] != want {
					t.Errorf("%s is not %q in %s", k, want, raw)
				}
			}
			if v.outcome != c.outcome || c.fields["reason"] == "" && f["reason"] != nil {
				t.Errorf("%s", raw)
			}
			b.idleSoon()
		})
	}
}

package preflight

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Judge fits every curve again from its samples, compares the engines and checks every pair.
func (Gate) Judge(v gates.View) []record.Finding {
	out := judgeLooks(v)
	profiled := map[string]Profiled{}
	for _, e := range v.Fleet.EngineIDs() {
		var m Profiled
		if v.Decode(ProfileKey(e), &m) == nil {
			profiled[e] = m
			out = append(out, judgeProfile(v.Fleet, e, m)...)
		}
		var a Aborted
		if v.Decode(AbortKey(e), &a) == nil {
			out = append(out, judgeAbort(v.Fleet, e, a)...)
		}
		var x Expired
		if v.Decode(LeaseKey(e), &x) == nil {
			out = append(out, judgeLease(v.Fleet, e, x)...)
		}
	}
	out = append(out, judgePeers(v, profiled)...)
	out = append(out, judgeRestarts(v)...)
	out = append(out, judgeTogether(v)...)
	var firsts []float64
	for _, p := range v.Fleet.HandoffPairs() {
		var h Handed
		if v.Decode(pairKey(p[0], p[1]), &h) == nil {
			out = append(out, judgePair(v.Fleet, p[0], p[1], h)...)
			firsts = append(firsts, h.FirstS...)
		}
	}
	return append(out, judgeFirstTokens(v.Fleet, firsts)...)
}

func judgeAbort(f fleet.Fleet, e string, a Aborted) []record.Finding {
	if a.stopped() {
		return nil
	}
	x := &finder{fleet: f, engine: e, evidence: AbortKey(e)}
	x.add("abort-ignored", fmt.Sprintf("a request that stops and frees its cache within %v of its client leaving", abortWithin),
		fmt.Sprintf("%.0f of %d tokens generated, freed: %v, %.3g of the cache in use after %.0f ms", a.Generated, a.Asked, a.Freed, a.Usage, a.FreedMS),
		"something between this host and the engine keeps the connection (a proxy?), or the engine ignores it: abandoned requests would hold its seats")
	return x.found
}

func judgeLease(f fleet.Fleet, e string, l Expired) []record.Finding {
	if l.Freed {
		return nil
	}
	x := &finder{fleet: f, engine: e, evidence: LeaseKey(e)}
	if l.Skipped != "" {
		x.add("lease-none", "a lease of handoffs that nobody fetches", l.Skipped, "leave deploy.profile.lease_drill out: the engine's own limits end what waits for a peer")
		x.found[0].Note = true
		return x.found
	}
	x.add("lease-kept", "a handoff that nobody fetches counted as expired, and its cache freed", fmt.Sprintf("%.0f counted, %.3g of the cache held after %.0f s", l.Counted, l.After, l.Seconds),
		"lost handoffs would fill the cache: check kv_lease_duration of the connector, and the engine's version")
	return x.found
}

// judgeFirstTokens holds the deadline of the consumer's first token against what was seen.
// The proposal is the largest, or the 99th percentile and a fifth, and half a second.
func judgeFirstTokens(f fleet.Fleet, s []float64) []record.Finding {
	limit := f.Engine.FirstTokenTimeoutS
	if len(s) == 0 || limit <= 0 {
		return nil
	}
	s = slices.Sorted(slices.Values(s))
	propose := proposed(s)
	if propose < limit {
		return nil
	}
	x := record.Finding{Code: "first-token-deadline", Want: fmt.Sprintf("engine.first_token_timeout_s above %.3g s", propose), Got: fmt.Sprintf("%.3g s", limit), Note: s[len(s)-1] < limit,
		Evidence: "F/pair", Hint: fmt.Sprintf("set engine.first_token_timeout_s: %.3g", propose*1.05)}
	x.Message = fmt.Sprintf("first tokens came after at most %.3g s (%d handoffs): got a deadline of %s, want %s", s[len(s)-1], len(s), x.Got, x.Want)
	return []record.Finding{x}
}

// proposed is the deadline for the first tokens s, sorted; s is not empty.
func proposed(s []float64) float64 { return max(s[len(s)-1], 1.2*profile.Quantile(s, 0.99)) + 0.5 }

func judgePair(f fleet.Fleet, p, d string, h Handed) []record.Finding {
	if h.Skipped != "" {
		return nil // said for all pairs at once
	}
	var out []record.Finding
	add := func(code, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: f.HostOf(d), Engine: d, Want: want, Got: got, Hint: hint, Evidence: string(pairKey(p, d)),
			Message: fmt.Sprintf("handoff %s → %s: got %s, want %s", p, d, got, want)})
	}
	const computed = "the consumer computed the prompt itself: check kv_load_failure_policy and the connector"
	for _, one := range []struct {
		h    *Handed
		Code string
	}{{h: &h, Code: "handoff-output"}, {h: h.Long, Code: "long-handoff-output"}} {
		if one.h != nil && !one.h.equal() {
			add(one.Code, one.h.wanted(), fmt.Sprint(one.h.Split), "the KV that arrived is not the prompt's: compare block size, layout and versions of the two engines")
		}
	}
	for _, one := range []struct {
		h    *Handed
		Code string
	}{{h: &h, Code: "handoff-counters"}, {h: h.Long, Code: "long-handoff-counters"}} {
		if one.h != nil && !one.h.moved() {
			add(one.Code, fmt.Sprintf("about %d tokens by transfer and no failure", one.h.Prompt), fmt.Sprintf("%.0f by transfer, %.0f failed", one.h.Moved+one.h.Transfers, one.h.Failed), computed)
		}
	}
	if h.Restarted || h.Long != nil && h.Long.Restarted {
		add("handoff-restart", "one process of the consumer from first to last", "another process start", "see the engine's log for a crash, then narwhal gate run --again F")
	}
	return out
}

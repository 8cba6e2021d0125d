package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// driftFrom is the pace of the second half over the first, or the other way round.
const driftFrom = 1.15

// fit finds the curve through the median of each point's samples: one request that met a busy
// moment of the machine does not bend it.
func (p Profiled) fit() (profile.Curve, profile.Report, error) {
	return profile.Rough(medians(p.Samples))
}

const again = "measure on an idle engine: narwhal gate run --again F"

// finder makes findings of one piece of evidence.
type finder struct {
	fleet    fleet.Fleet
	engine   string
	evidence record.Key
	found    []record.Finding
}

func (x *finder) add(code, want, got, hint string) {
	x.found = append(x.found, record.Finding{Code: code, Host: x.fleet.HostOf(x.engine), Engine: x.engine, Want: want, Got: got, Hint: hint, Evidence: string(x.evidence),
		Message: fmt.Sprintf("engine %s: got %s, want %s", x.engine, got, want)})
}

// noted makes the last finding one that does not fail the gate.
func (x *finder) noted() { x.found[len(x.found)-1].Note = true }

// judgeProfile fits the curve again and tells a wrong curve from a noisy machine.
func judgeProfile(f fleet.Fleet, e string, m Profiled) []record.Finding {
	x := &finder{fleet: f, engine: e, evidence: ProfileKey(e)}
	curve, rep, err := m.fit()
	if err != nil {
		x.add("profile-unfit", "samples that follow a curve", fmt.Sprintf("%v; the middle half width of the points is ±%.0f %%", err, 100*spread(m.Samples)), again)
		return x.found
	}
	judgePrefill(x, curve, rep, m.Samples)
	judgeFit(x, curve, rep, m)
	if by, sure := drift(m.Samples.Decode); sure && (by >= driftFrom || by <= 1/driftFrom) {
		x.add("pace-drifted", "one pace from the first measurement to the last", fmt.Sprintf("the second half %.2f times as slow as the first", by),
			"look for throttling, for clocks that rise late, and for other work on the host; then "+again)
		x.noted()
	}
	judgeFloor(x, f.SLO, curve)
	judgeCohorts(x, f.SLO, curve, m.Samples)
	judgeMixed(x, f.SLO, curve, m)
	return x.found
}

// judgeFloor finds limits that no schedule can keep.
func judgeFloor(x *finder, slo fleet.SLO, curve profile.Curve) {
	if least := curve.Prefill(1); least > slo.TTFTS {
		x.add("slo-below-floor", fmt.Sprintf("a prefill floor under the TTFT limit of %.3g s", slo.TTFTS), fmt.Sprintf("%.3g s", least), "raise slo.ttft_s")
	}
	if least := curve.Interval(curve.MinRequests, curve.MinKVTokens); least > slo.TPOTS {
		x.add("slo-below-floor", fmt.Sprintf("a decode floor under the TPOT limit of %.3g s", slo.TPOTS), fmt.Sprintf("%.3g s", least), "raise slo.tpot_s")
	}
}

// judgeCohorts notes which measured points miss the limits, and what would keep them.
func judgeCohorts(x *finder, slo fleet.SLO, curve profile.Curve, s profile.Samples) {
	if curve.Prefill(1) > slo.TTFTS || curve.Interval(curve.MinRequests, curve.MinKVTokens) > slo.TPOTS {
		return // the floor is found already
	}
	for _, c := range prefillCells(s) {
		if t := curve.Prefill(c.at); t > slo.TTFTS {
			x.add("slo-infeasible", fmt.Sprintf("a prefill of %d tokens within %.3g s", c.at, slo.TTFTS), fmt.Sprintf("%.3g s", t),
				fmt.Sprintf("prompts up to %d tokens keep slo.ttft_s alone on this engine; these need %.3g s", longest(curve, slo.TTFTS, c.at), t))
			x.noted()
		}
	}
	for _, c := range decodeCells(s) {
		t := curve.Interval(c.at.requests, c.at.tokens)
		if t <= slo.TPOTS {
			continue
		}
		each := c.at.tokens / c.at.requests
		g, _ := curve.Batch(float64(each), slo.TPOTS)
		hint := fmt.Sprintf("at most %d requests of that length decode together within slo.tpot_s: %d engines for %d, or slo.tpot_s: %.3g", g, (c.at.requests+g-1)/max(g, 1), c.at.requests, t)
		if g == 0 {
			hint = fmt.Sprintf("not even one of that length decodes within slo.tpot_s: it needs %.3g s", curve.Interval(1, each))
		}
		x.add("slo-infeasible", fmt.Sprintf("%d requests of %d tokens each decoding within %.3g s a token", c.at.requests, each, slo.TPOTS), fmt.Sprintf("%.3g s", t), hint)
		x.noted()
	}
}

// longest prompt below n tokens whose prefill takes at most limit seconds; 0 for none.
func longest(c profile.Curve, limit float64, n int) int {
	lo, hi := 0, n
	for lo+1 < hi {
		mid := (lo + hi) / 2
		if c.Prefill(mid) <= limit {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// judgeMixed notes limits that the engine keeps alone and misses beside other work, and a
// prefix cache that does nothing.
func judgeMixed(x *finder, slo fleet.SLO, curve profile.Curve, m Profiled) {
	of := func(value func(Beside) float64) float64 {
		var v []float64
		for _, b := range m.Beside {
			v = append(v, value(b))
		}
		return median(v)
	}
	if len(m.Beside) > 0 {
		b := m.Beside[0]
		took, gap, stall := of(func(b Beside) float64 { return b.Seconds }), of(func(b Beside) float64 { return b.Gap }), of(func(b Beside) float64 { return b.Longest })
		late := took > slo.TTFTS && curve.Prefill(b.Tokens) <= slo.TTFTS
		held := gap > slo.TPOTS && curve.Interval(b.Requests, b.KVTokens) <= slo.TPOTS
		if late || held {
			x.add("interference", fmt.Sprintf("a prefill of %d tokens beside %d decoding within %.3g s, and their tokens within %.3g s", b.Tokens, b.Requests, slo.TTFTS, slo.TPOTS),
				fmt.Sprintf("%.3g s (%.3g s alone), tokens %.3g s apart and held up for %.3g s", took, curve.Prefill(b.Tokens), gap, stall),
				"keep prefill and decode on different engines, or limit the tokens of one batch (--max-num-batched-tokens)")
			x.noted()
		}
	}
	if len(m.Warm) > 0 {
		w := m.Warm[0]
		var hits, took []float64
		for _, w := range m.Warm {
			hits, took = append(hits, w.Hits), append(took, w.Seconds)
		}
		if cold := curve.Prefill(w.Prefix + w.Suffix); median(hits) < float64(w.Prefix)/2 || median(took) > cold {
			x.add("prefix-cache-idle", fmt.Sprintf("about %d of %d tokens from the prefix cache, quicker than the %.3g s of a cold prompt", w.Prefix, w.Prefix+w.Suffix, cold),
				fmt.Sprintf("%.0f tokens from it, %.3g s", median(hits), median(took)), "the engine says that it caches prefixes: see its version and cache size, or start it without")
			x.noted()
		}
	}
}

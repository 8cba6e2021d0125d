package preflight

import (
	"fmt"
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Judge fits every curve again from its samples and checks every pair.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	for _, e := range v.Fleet.EngineIDs() {
		var m Profiled
		if v.Decode(ProfileKey(e), &m) == nil {
			out = append(out, judgeProfile(v.Fleet, e, m)...)
		}
	}
	for _, p := range directedPairs(v.Fleet.EngineIDs()) {
		var h Handed
		if v.Decode(pairKey(p[0], p[1]), &h) == nil {
			out = append(out, judgePair(v.Fleet, p[0], p[1], h)...)
		}
	}
	return out
}

// fit finds the curve through the median of each prompt length's samples: one request
// that met a busy moment of the machine does not bend it.
func (p Profiled) fit() (profile.Curve, profile.Report, error) {
	by := map[int][]float64{}
	for _, s := range p.Samples.Prefill {
		by[s.Tokens] = append(by[s.Tokens], s.Seconds)
	}
	s := profile.Samples{Decode: p.Samples.Decode}
	for _, n := range slices.Sorted(maps.Keys(by)) {
		v := by[n]
		slices.Sort(v)
		s.Prefill = append(s.Prefill, profile.PrefillSample{Tokens: n, Seconds: (v[(len(v)-1)/2] + v[len(v)/2]) / 2})
	}
	return profile.Fit(s)
}

func judgeProfile(f fleet.Fleet, e string, m Profiled) []record.Finding {
	add := func(code, want, got, hint string) record.Finding {
		return record.Finding{Code: code, Host: f.HostOf(e), Engine: e, Want: want, Got: got, Hint: hint, Evidence: string(ProfileKey(e)),
			Message: fmt.Sprintf("engine %s: got %s, want %s", e, got, want)}
	}
	const again = "measure on an idle engine: narwhal gate run --again F"
	curve, rep, err := m.fit()
	if err != nil {
		return []record.Finding{add("profile-unfit", "samples that follow a curve", err.Error(), again)}
	}
	var out []record.Finding
	if limit := f.Profiles.MaxDecodeFitMAPE; rep.Decode.MAPE > limit {
		out = append(out, add("decode-fit", fmt.Sprintf("a mean decode error up to %.3g", limit), fmt.Sprintf("%.3g", rep.Decode.MAPE), again+", or raise profiles.max_decode_fit_mape"))
	}
	if limit := f.Profiles.MaxDecodeCVMAPE; rep.DecodeCV > limit {
		out = append(out, add("decode-cross-validation", fmt.Sprintf("a leave-one-out error up to %.3g", limit), fmt.Sprintf("%.3g", rep.DecodeCV), again+", or raise profiles.max_decode_cv_mape"))
	}
	if least := curve.C; least > f.SLO.TTFTS {
		out = append(out, add("slo-below-floor", fmt.Sprintf("a prefill floor under the TTFT limit of %.3g s", f.SLO.TTFTS), fmt.Sprintf("%.3g s", least), "raise slo.ttft_s"))
	}
	if least := curve.Intercept; least > f.SLO.TPOTS {
		out = append(out, add("slo-below-floor", fmt.Sprintf("a decode floor under the TPOT limit of %.3g s", f.SLO.TPOTS), fmt.Sprintf("%.3g s", least), "raise slo.tpot_s"))
	}
	return out
}

func judgePair(f fleet.Fleet, p, d string, h Handed) []record.Finding {
	var out []record.Finding
	add := func(code, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: f.HostOf(d), Engine: d, Want: want, Got: got, Hint: hint, Evidence: string(pairKey(p, d)),
			Message: fmt.Sprintf("handoff %s → %s: got %s, want %s", p, d, got, want)})
	}
	if !h.equal() {
		add("handoff-output", fmt.Sprintf("tokens %v as unsplit", h.Unsplit), fmt.Sprint(h.Split), "the KV that arrived is not the prompt's: compare block size, layout and versions of the two engines")
	}
	if !h.moved() {
		add("handoff-counters", fmt.Sprintf("about %d tokens by transfer and no failure", h.Prompt), fmt.Sprintf("%.0f by transfer, %.0f failed", h.Moved, h.Failed), "the consumer computed the prompt itself: check kv_load_failure_policy and the connector")
	}
	return out
}

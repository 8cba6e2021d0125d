package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// excused bounds what noise may excuse: how far the curve may lie from the engine's own, and the
// error that noise alone explains. Past them a measurement says too little of the engine, and no
// fit of it passes on the grounds of noise.
func excused(f fleet.Fleet) (off, noise float64) {
	off = fleet.DefaultUncertainty
	if f.Deploy != nil && f.Deploy.Profile.Uncertainty > 0 {
		off = f.Deploy.Profile.Uncertainty
	}
	return off, 2 * off
}

// judgePrefill tells prefills of another shape from noisy ones, as judgeFit does of the decode.
func judgePrefill(x *finder, curve profile.Curve, rep profile.Report, s profile.Samples) {
	if rep.PrefillFits() {
		return
	}
	mean, largest, off := prefillChance(curve, s)
	mostOff, mostNoise := excused(x.fleet)
	want := fmt.Sprintf("prefills with a mean error up to %.3g, the largest up to %.3g", profile.MaxPrefillMAPE, profile.MaxPrefillError)
	got := fmt.Sprintf("%.3g and %.3g over %d samples of %d lengths, ±%.0f %% in the middle; noise alone gives up to %.3g and %.3g", rep.Prefill.MAPE, rep.Prefill.Max,
		len(s.Prefill), len(prefillCells(s)), 100*spread(s), mean, largest)
	switch {
	case rep.Prefill.MAPE > mean || rep.Prefill.Max > largest:
		x.add("profile-unfit", want, got, "the engine's prefills do not follow their tokens: change deploy.profile.prefill_tokens, or "+again)
	case off > mostOff || mean > mostNoise:
		x.add("profile-noisy", want, fmt.Sprintf("%s, and the curve of prefills is known to ±%.0f %% only", got, 100*off), again+", raise deploy.profile.budget, or allow more in deploy.profile.uncertainty")
	default:
		x.add("prefill-fit", want, fmt.Sprintf("%s: the curve passes, known to ±%.0f %% (95 %%)", got, 100*off), again+" for a surer one")
		x.noted()
	}
}

// judgeFit holds the errors of the decode fit against the policy. An error above it that the
// spread of the repeats explains is a note with what is known; one that it does not explain
// is a curve of another shape. Of a curve within the limits judgeCertainty says how well it is known.
func judgeFit(x *finder, curve profile.Curve, rep profile.Report, m Profiled) {
	policy, s := x.fleet.Profiles, m.Samples
	within := rep.Decode.MAPE <= policy.MaxDecodeFitMAPE && rep.DecodeCV <= policy.MaxDecodeCVMAPE
	if within && (m.Ended == "" || m.Ended == endedSettled) {
		return
	}
	c := chance(curve, s)
	if within {
		judgeCertainty(x, curve, m, c.Off)
		return
	}
	mostOff, mostNoise := excused(x.fleet)
	saw := fmt.Sprintf("over %d samples of %d points, ±%.0f %% in the middle", len(s.Decode), len(decodeCells(s)), 100*spread(s))
	for _, e := range []struct {
		Code, what, field string
		limit, got, noise float64
	}{
		{Code: "decode-fit", what: "a mean decode error", field: "profiles.max_decode_fit_mape", limit: policy.MaxDecodeFitMAPE, got: rep.Decode.MAPE, noise: c.Fit},
		{Code: "decode-cross-validation", what: "a leave-one-out error", field: "profiles.max_decode_cv_mape", limit: policy.MaxDecodeCVMAPE, got: rep.DecodeCV, noise: c.CV},
	} {
		want := fmt.Sprintf("%s up to %.3g", e.what, e.limit)
		got := fmt.Sprintf("%.3g %s; noise alone gives up to %.3g", e.got, saw, e.noise)
		switch {
		case e.got <= e.limit:
		case e.got > e.noise:
			x.add(e.Code, want, got, "the engine's pace does not follow requests and tokens: change the points of deploy.profile, or raise "+e.field)
		case c.Off > mostOff || e.noise > mostNoise:
			x.add("profile-noisy", want, fmt.Sprintf("%s, and the curve is known to ±%.0f %% only", got, 100*c.Off), again+", raise deploy.profile.budget, allow more in deploy.profile.uncertainty, or raise "+e.field)
		default:
			x.add(e.Code, want, fmt.Sprintf("%s: the curve passes, known to ±%.0f %% (95 %%)", got, 100*c.Off), again+" for a surer one")
			x.noted()
		}
	}
}

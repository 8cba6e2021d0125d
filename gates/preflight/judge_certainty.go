package preflight

import (
	"fmt"
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// judgeCertainty notes a curve within the limits that is known less well than its points are when
// they settle, because the sweep ended before. decode is how far the curve of decodes may lie from
// the engine's own. Points that did not settle under a curve that is known are no reason for a note.
func judgeCertainty(x *finder, curve profile.Curve, m Profiled, decode float64) {
	prefills, decodes, all := unsettled(m.Samples)
	_, _, prefill := prefillChance(curve, m.Samples)
	if known(prefill, prefills) && known(decode, decodes) {
		return
	}
	open := append(prefills, decodes...)
	worst := open[0]
	for _, p := range open {
		if p.half > worst.half {
			worst = p
		}
	}
	hint := again + " for a surer one"
	if m.Ended == endedBudget {
		hint += ", or raise deploy.profile.budget"
	}
	x.add("profile-uncertain", fmt.Sprintf("both known to ±%.0f %%", 100*precision),
		fmt.Sprintf("the curve of prefills %s and that of decodes %s (95 %%) when the sweep's %s ended it; %d of %d points did not settle, the least known is %s",
			howWell(prefill, prefills), howWell(decode, decodes), m.Ended, len(open), all, worst), hint)
	x.noted()
}

// known reports whether a curve that may lie off from the engine's own is as sure as a settled point.
func known(off float64, open []loose) bool {
	return len(open) == 0 || !untold(off, open) && off <= precision
}

// untold reports that off says nothing: no draw could be fitted, or a point has no repeat to draw from.
func untold(off float64, open []loose) bool {
	return len(open) > 0 && (off == 0 || slices.ContainsFunc(open, func(p loose) bool { return math.IsInf(p.half, 1) }))
}

func howWell(off float64, open []loose) string {
	if untold(off, open) {
		return "not known"
	}
	return fmt.Sprintf("known to ±%.1f %%", 100*off)
}

// loose is a point whose median is not known to precision.
type loose struct {
	name string
	half float64 // of its confidence interval, as a share of the median
}

func (p loose) String() string {
	if math.IsInf(p.half, 1) {
		return p.name + ", measured once"
	}
	return fmt.Sprintf("%s, to ±%.0f %%", p.name, 100*p.half)
}

// unsettled are the points of both curves that did not settle, of so many in all.
func unsettled(s profile.Samples) (prefills, decodes []loose, all int) {
	for _, c := range prefillCells(s) {
		all++
		if h := halfWidth(c.values); h > precision {
			prefills = append(prefills, loose{fmt.Sprintf("a prefill of %d tokens", c.at), h})
		}
	}
	for _, c := range decodeCells(s) {
		all++
		if h := halfWidth(c.values); h > precision {
			decodes = append(decodes, loose{fmt.Sprintf("%d decoding with %d tokens in all", c.at.requests, c.at.tokens), h})
		}
	}
	return prefills, decodes, all
}

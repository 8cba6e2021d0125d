package preflight

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Chance is what errors of a decode fit the noise of the measurements alone explains.
type Chance struct {
	Fit float64 // mean error of the fit, exceeded in one of a hundred
	CV  float64 // leave-one-out error, the same
	// Off is how far the curve that was found may lie from the engine's own, mean over the
	// cells, exceeded in one of twenty.
	Off float64
}

const (
	draws     = 300 // of chance
	drawSeed  = 20  // judging is repeated offline and must say the same
	rareShare = 0.99
	oddShare  = 0.95
)

// chance asks what a fit would show if the curve c were the engine's own and only noise lay
// between: each cell is drawn again from its own repeats, around the curve. A cell that was
// measured once has no noise that could excuse it.
func chance(c profile.Curve, s profile.Samples) Chance {
	all := decodeCells(s)
	rng := rand.New(rand.NewPCG(drawSeed, drawSeed))
	prefill := medians(s).Prefill
	var fits, cvs, offs []float64
	for range draws {
		drawn := profile.Samples{Prefill: prefill}
		for _, cell := range all {
			gap := c.Interval(cell.at.requests, cell.at.tokens) * redraw(rng, cell.values)
			drawn.Decode = append(drawn.Decode, profile.DecodeSample{Requests: cell.at.requests, KVTokens: cell.at.tokens, Gap: gap})
		}
		curve, rep, err := profile.Rough(drawn)
		if err != nil {
			return Chance{}
		}
		off := 0.0
		for _, cell := range all {
			was := c.Interval(cell.at.requests, cell.at.tokens)
			off += abs(curve.Interval(cell.at.requests, cell.at.tokens)-was) / was / float64(len(all))
		}
		fits, cvs, offs = append(fits, rep.Decode.MAPE), append(cvs, rep.DecodeCV), append(offs, off)
	}
	slices.Sort(fits)
	slices.Sort(cvs)
	slices.Sort(offs)
	return Chance{Fit: profile.Quantile(fits, rareShare), CV: profile.Quantile(cvs, rareShare), Off: profile.Quantile(offs, oddShare)}
}

// prefillChance is what errors of the prefills the noise of their repeats alone explains, asked as
// chance asks.
func prefillChance(c profile.Curve, s profile.Samples) (mean, largest, off float64) {
	all := prefillCells(s)
	rng := rand.New(rand.NewPCG(drawSeed, drawSeed))
	decode := medians(s).Decode
	var means, largests, offs []float64
	for range draws {
		drawn := profile.Samples{Decode: decode}
		for _, cell := range all {
			drawn.Prefill = append(drawn.Prefill, profile.PrefillSample{Tokens: cell.at, Seconds: c.Prefill(cell.at) * redraw(rng, cell.values)})
		}
		curve, rep, err := profile.Rough(drawn)
		if err != nil {
			return 0, 0, 0
		}
		away := 0.0
		for _, cell := range all {
			was := c.Prefill(cell.at)
			away += abs(curve.Prefill(cell.at)-was) / was / float64(len(all))
		}
		means, largests, offs = append(means, rep.Prefill.MAPE), append(largests, rep.Prefill.Max), append(offs, away)
	}
	slices.Sort(means)
	slices.Sort(largests)
	slices.Sort(offs)
	return profile.Quantile(means, rareShare), profile.Quantile(largests, rareShare), profile.Quantile(offs, oddShare)
}

// byChance is how probable it is that n prefills all take some factor of the curve or more, by what
// the sweep's own prefills took.
func byChance(c profile.Curve, s profile.Samples, factor float64, n int) float64 {
	if len(s.Prefill) == 0 {
		return 0
	}
	longer := 0
	for _, p := range s.Prefill {
		if p.Seconds >= factor*c.Prefill(p.Tokens) {
			longer++
		}
	}
	return math.Pow(float64(longer)/float64(len(s.Prefill)), float64(n))
}

// redraw is the median of as many values drawn from the same, over their own median. What
// few repeats cannot show of the spread is made up by n/(n−1), as for a variance.
func redraw(rng *rand.Rand, values []float64) float64 {
	n := len(values)
	if n < 2 {
		return 1
	}
	drawn := make([]float64, n)
	for i := range drawn {
		drawn[i] = values[rng.IntN(n)]
	}
	wide := 1 + (median(drawn)/median(values)-1)*float64(n)/float64(n-1)
	return max(wide, 0.05)
}

func abs(v float64) float64 { return max(v, -v) }

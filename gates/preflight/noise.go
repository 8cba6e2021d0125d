package preflight

import (
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
		curve, rep, err := profile.Fit(drawn)
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

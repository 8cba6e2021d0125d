package control

import "math/bits"

const (
	// capBands are limits of answers, each twice as long as the one before; the first is of
	// requests that set none.
	capBands = 20
	// presumed is how long an answer without a limit is taken to be before any was seen.
	presumed = 200
	// presumes is how many answers of a wider group weigh as much as that group does in the
	// expectation for a narrower one.
	presumes = 4
	// What one more answer leaves of the weight of those before, of the same band and in all.
	bandDecay, outputDecay = 1 - 1.0/64, 1 - 1.0/256
)

// share is what answers got of what they were allowed, or their lengths by their number where
// nothing limited them.
type share struct {
	Of   float64 `json:"of"`
	Made float64 `json:"made"`
}

func (s share) plus(of, made float64) share { return share{s.Of + of, s.Made + made} }

func (s share) decayed(by float64) share { return share{s.Of * by, s.Made * by} }

// toward is the mean with so much weight on another one.
func (s share) toward(mean, weight float64) float64 {
	return (s.Made + mean*weight) / (s.Of + weight)
}

// outputs learns how long answers are, by the length of the prompt and by the limit that the
// client set: what asks for much differs from what asks for little, and so do documents from
// chats. What a band has not shown yet is taken from all bands. It forgets, so that a shift is
// followed.
type outputs struct {
	Seen     int                     `json:"seen"`
	Free     int                     `json:"free,omitempty"` // of them without a limit
	Capped   share                   `json:"capped,omitzero"`
	Uncapped share                   `json:"uncapped,omitzero"`
	Rows     [capBands]*[bands]share `json:"rows"` // by limit, then by prompt; replaced, never written
}

func capBand(wanted int) int { return min(bits.Len(uint(max(0, wanted))), capBands-1) }

func (o outputs) learn(e Outcome) outputs {
	o.Seen++
	of, made := 1.0, float64(e.Output)
	all := &o.Uncapped
	if e.Wanted > 0 {
		of, all = float64(e.Wanted), &o.Capped
	} else {
		o.Free++
	}
	*all = all.decayed(outputDecay).plus(of, made)
	k, row := capBand(e.Wanted), new([bands]share)
	if o.Rows[k] != nil {
		*row = *o.Rows[k]
	}
	b := &row[band(e.Input)]
	*b = b.decayed(bandDecay).plus(of, made)
	o.Rows[k] = row
	return o
}

// expect returns the expected length of an answer, at least 1.
func (o *outputs) expect(input, wanted int) float64 {
	unit, mean, all := 1.0, float64(presumed), &o.Uncapped
	if wanted > 0 {
		unit, mean, all = float64(wanted), 1, &o.Capped
	}
	if all.Of > 0 {
		mean = all.Made / all.Of
	}
	if row := o.Rows[capBand(wanted)]; row != nil {
		var sum share
		for i := range row {
			sum = sum.plus(row[i].Of, row[i].Made)
		}
		mean = sum.toward(mean, presumes*unit)
		mean = row[band(input)].toward(mean, presumes*unit)
	}
	if wanted > 0 {
		mean = min(1, mean) * unit
	}
	return max(1, mean)
}

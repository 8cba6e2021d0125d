package sched

const (
	// filled is the part of an engine's seats up to which its batch had better be the fuller one.
	filled = 0.8
	// spreading is what an empty batch costs beside a filled one, as a part of the promise for the first
	// token.
	spreading = 1.4
	// crowded is the part of all seats from which spreading costs as much as that; in a fleet where
	// fewer are taken it costs less, and an almost idle one is used evenly.
	crowded = 0.25
)

// spread adds what it costs the fleet that a request decodes in an emptier batch. A step takes hardly longer
// for a batch than for one request, so that the same tokens made on fewer engines leave others to bear
// prefills, or to take the other role with few residents. Where engines do neither it is 0, and on an engine
// that is filled, where the delay to its residents decides.
func (w *weighing) spread() {
	par := &w.s.Params
	if w.shared || par.FixedRoles {
		return
	}
	taken, all := 0, 0
	for j := range w.ds {
		taken += w.ds[j].taken
		all += w.ds[j].seats
	}
	empty := float64(spreading * par.TTFT * min(1, float64(taken)/(crowded*float64(max(1, all)))))
	if empty == 0 {
		return
	}
	for j := range w.ds {
		d := &w.ds[j]
		if left := filled - float64(d.taken)/float64(max(1, d.seats)); left > 0 {
			d.Parts.Spread = float64(empty * left)
			d.Cost += d.Parts.Spread
			d.micro = micro(d.Cost)
		}
	}
}

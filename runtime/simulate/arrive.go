package simulate

import "github.com/narwhal-fleet/narwhal/runtime/model"

// arrive admits or refuses. A request that no engine's cache holds whole is refused, since
// no engine takes it.
func (w *world) arrive(j *job) {
	inflight := w.inflight() - 1
	if w.kind.bounded && w.c.Inflight > 0 && inflight >= w.c.Inflight {
		w.refuse(j)
		return
	}
	believed := w.believed(j)
	held := 0
	for _, n := range believed {
		held = max(held, n)
	}
	w.mind.arrived(w.now, j.input, j.wanted, held)
	if j.input+j.output > w.c.Model.KVTokens {
		w.refuse(j)
		return
	}
	j.unsplit = w.shape == Aggregated
	w.request = model.Request{ID: j.id, Arrived: j.at, Input: j.input, Expected: w.mind.expect(j.input, j.wanted), Unsplit: j.unsplit, Cached: believed}
	j.expected = w.request.Expected
	if w.c.Trouble.Lengths != Exactly {
		j.told = j.expected
	}
	w.look()
	at := w.mind.place(&w.fleet, &w.request)
	if at.p == nil {
		w.refuse(j)
		return
	}
	w.assign(j, at)
}

func (w *world) refuse(j *job) {
	w.tallies[j.class].refused++
	w.turned++
	w.free = append(w.free, j)
}

package simulate

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// report is what an engine told of itself at a moment, in the times of its own clock.
type report struct {
	at, arrives float64
	view        model.EngineView
	residents   []told
}

// told is one resident of a report.
type told struct {
	model.Resident
	arrived, first float64
	output         int
}

// given is a placement that no report has yet.
type given struct {
	at float64
	j  job // as it was placed
	p  bool
	d  bool
}

// window is what the router sees of an engine through its reports.
type window struct {
	engine *engine
	skew   float64
	now    report   // the latest that has arrived
	coming []report // in the order of their moments
	since  []given
	count  int
}

// reporting starts the reports of an arm: views of their own stand in the snapshot.
func (w *world) reporting() {
	t := w.c.Trouble
	w.nextReport = t.Report
	for i, e := range w.engines {
		off := float64(draw(w.c.Seed, i, 2)%2001)/1000 - 1
		truth := *e.v
		e.v = &truth
		e.window = &window{engine: e, skew: float64(off * t.Skew), now: report{view: truth}}
	}
}

// report lets every engine tell of itself.
func (w *world) report() {
	t := w.c.Trouble
	for i, e := range w.engines {
		x := e.window
		x.count++
		if float64(draw(w.c.Seed, i, 2+x.count)%1_000_000) < t.Lost*1e6 {
			continue
		}
		e.look(w.now)
		r := report{at: w.now, arrives: w.now + t.Late, view: *e.v}
		r.view.PrefillFree += x.skew
		r.residents = e.tell(w.now, x.skew)
		x.coming = append(x.coming, r)
	}
	w.nextReport = w.now + t.Report
}

// tell lists the residents, those that still prefill elsewhere included.
func (e *engine) tell(now, skew float64) (out []told) {
	steps := e.stepsBy(now)
	for _, j := range e.batch {
		first := 0.0
		if j.first > 0 {
			first = j.first + skew
		}
		out = append(out, told{model.Resident{Tokens: j.input + j.output - (j.leaves - steps), Remaining: e.due(j, steps)}, j.at, first, j.told})
	}
	for _, j := range e.join.all() {
		out = append(out, told{model.Resident{Ready: j.ready + skew, Tokens: j.input, Remaining: j.told}, j.at, 0, j.told})
	}
	for _, j := range e.pending {
		out = append(out, told{model.Resident{Ready: j.placed + j.queue + j.own + skew, Tokens: j.input, Remaining: j.told}, j.at, 0, j.told})
	}
	return out
}

// gave notes a placement.
func (w *world) gave(j *job) {
	if w.c.Trouble.Report <= 0 {
		return
	}
	for _, e := range []*engine{j.p, j.d} {
		e.window.since = append(e.window.since, given{w.now, *j, e == j.p, e == j.d})
		if j.p == j.d {
			break
		}
	}
}

// show fills the view that the router has: the latest report that has arrived, and what it has
// given the engine since. Roles are its own and known.
func (x *window) show(v *model.EngineView, now float64) {
	for len(x.coming) > 0 && x.coming[0].arrives <= now {
		x.now = x.coming[0]
		x.coming = x.coming[1:]
		at := x.now.at
		x.since = slices.DeleteFunc(x.since, func(g given) bool { return g.at <= at })
	}
	truth := x.engine.v
	*v = x.now.view
	v.Role, v.Live, v.RoleSince, v.Pinned, v.Later = truth.Role, truth.Live, truth.RoleSince, truth.Pinned, x
	for i := range x.since {
		g := &x.since[i]
		if g.p {
			v.PrefillFree = max(v.PrefillFree, g.at) + g.j.own
			v.PrefillRequests++
		}
		if g.d {
			v.DecodeRequests++
			v.DecodeTokens += g.j.input
			v.DecodeRemaining += g.j.told
		}
	}
}

// clear forgets all reports: the engine has ended.
func (x *window) clear() {
	x.now = report{view: *x.engine.v}
	x.now.view.PrefillFree, x.now.view.PrefillRequests = 0, 0
	x.now.view.DecodeRequests, x.now.view.DecodeTokens, x.now.view.DecodeRemaining = 0, 0, 0
	x.coming, x.since = nil, nil
}

// Occupied implements model.Later.
func (x *window) Occupied(now, at, interval float64) (requests, tokens int) {
	add := func(r model.Resident) {
		n, k := r.Takes(now, at, interval)
		requests, tokens = requests+n, tokens+k
	}
	for _, r := range x.now.residents {
		add(r.Resident)
	}
	for i := range x.since {
		if g := &x.since[i]; g.d {
			add(model.Resident{Ready: g.at + g.j.queue + g.j.own, Tokens: g.j.input, Remaining: g.j.told})
		}
	}
	return requests, tokens
}

// Slack implements model.Later. The engine's own view in the snapshot was shown at this moment.
func (x *window) Slack(now float64, p *model.Params) float64 {
	var v model.EngineView
	x.show(&v, now)
	s := model.NewSlack(now+v.Backlog(now), v.Kappa()*v.Curve.Interval(v.DecodeRequests, v.DecodeTokens), p)
	for _, r := range x.now.residents {
		if r.first > 0 {
			s.Decoding(r.first, r.output, r.Remaining)
		} else {
			s.Waiting(r.arrived, max(now, r.Ready))
		}
	}
	for i := range x.since {
		if g := &x.since[i]; g.d {
			s.Waiting(g.j.at, g.at+g.j.queue+g.j.own)
		}
	}
	return s.Seconds()
}

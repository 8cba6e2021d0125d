package simulate

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// report is what an engine told of itself at a moment, in the times of its own clock.
type report struct {
	at, arrives float64
	clock       float64 // what its clock showed
	view        model.EngineView
	prompts     []prompt // that wait, in their order
	residents   []told
}

// prompt is one that waits: its predicted prefill.
type prompt struct {
	own    float64
	tokens int
}

// told is one resident of a report.
type told struct {
	model.Resident
	arrived, first float64
	output         int
	here           bool // in the batch
}

// read puts a report into the router's time. The engine tells what its clock shows and the router
// knows when it asked, so that it does not matter by how much the two differ.
func (r *report) read() {
	off := r.clock - r.at
	if off == 0 {
		return
	}
	r.clock = r.at
	r.view.PrefillFree -= off
	for i := range r.residents {
		x := &r.residents[i]
		if x.first != 0 {
			x.first -= off
		}
		if !x.here {
			x.Ready -= off
		}
	}
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
	pace   float64 // of the batch, when it was last shown
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
		r := report{at: w.now, arrives: w.now + t.Late, clock: w.now + x.skew, view: *e.v}
		for _, j := range e.prefills.all() {
			r.prompts = append(r.prompts, prompt{j.takes(), j.input})
		}
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
		out = append(out, told{model.Resident{Tokens: j.input + j.output - (j.leaves - steps), Remaining: e.due(j, steps)}, j.at, first, j.told, true})
	}
	for _, j := range e.join.all() {
		out = append(out, told{model.Resident{Ready: j.ready + skew, Tokens: j.input, Remaining: j.told}, j.at, 0, j.told, false})
	}
	for _, j := range e.pending {
		out = append(out, told{model.Resident{Ready: j.due() + skew, Tokens: j.input, Remaining: j.told}, j.at, 0, j.told, false})
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

// show fills the view that the router has: the latest report that has arrived, aged by what must
// have happened since, and what it has given the engine since. Roles are its own and known.
func (x *window) show(v *model.EngineView, now float64) {
	for len(x.coming) > 0 && x.coming[0].arrives <= now {
		x.now = x.coming[0]
		x.now.read()
		x.coming = x.coming[1:]
		at := x.now.at
		x.since = slices.DeleteFunc(x.since, func(g given) bool { return g.at <= at })
	}
	truth := x.engine.v
	*v = x.now.view
	v.Role, v.Live, v.RoleSince, v.Pinned, v.Later = truth.Role, truth.Live, truth.RoleSince, truth.Pinned, x
	for i := range x.since {
		if g := &x.since[i]; g.p {
			v.PrefillFree = max(v.PrefillFree, g.at) + g.j.own
			v.PrefillRequests++
		}
	}
	x.pace = v.Kappa() * v.Curve.Interval(v.DecodeRequests, v.DecodeTokens)
	v.DecodeRequests, v.DecodeTokens, v.DecodeRemaining, v.ComingRequests, v.ComingTokens = 0, 0, 0, 0, 0
	x.each(now, func(r told) {
		if r.Ready > now {
			v.ComingRequests, v.ComingTokens = v.ComingRequests+1, v.ComingTokens+r.Tokens
		}
		v.DecodeRequests++
		v.DecodeTokens += r.Tokens
		v.DecodeRemaining += r.Remaining
	})
}

// each yields the residents as they should be by now, at the pace that the engine had.
func (x *window) each(now float64, yield func(told)) {
	for _, r := range x.now.residents {
		if r, there := r.aged(x.now.at, now, x.pace); there {
			yield(r)
		}
	}
	for i := range x.since {
		g := &x.since[i]
		if !g.d {
			continue
		}
		r := told{model.Resident{Ready: g.at + g.j.queue + g.j.own, Tokens: g.j.input, Remaining: g.j.told}, g.j.at, 0, g.j.told, false}
		if r, there := r.aged(g.at, now, x.pace); there {
			yield(r)
		}
	}
}

// aged is a resident after some time, and whether it is still there.
func (r told) aged(from, now, pace float64) (told, bool) {
	start := max(from, r.Ready)
	if start >= now || pace <= 0 {
		return r, true
	}
	made := int((now - start) / pace)
	if made >= r.Remaining {
		return r, false
	}
	if r.Ready > 0 && r.Ready <= now {
		r.Ready = 0
	}
	if made > 0 && r.first == 0 {
		r.first = start + pace
	}
	r.Tokens, r.Remaining = r.Tokens+made, r.Remaining-made
	return r, true
}

// clear forgets all reports: the engine has ended.
func (x *window) clear() {
	x.now = report{view: *x.engine.v}
	x.now.view.PrefillFree, x.now.view.PrefillRequests = 0, 0
	x.now.view.DecodeRequests, x.now.view.DecodeTokens, x.now.view.DecodeRemaining = 0, 0, 0
	x.now.view.ComingRequests, x.now.view.ComingTokens = 0, 0
	x.coming, x.since = nil, nil
}

// Occupied implements model.Later.
func (x *window) Occupied(now, at, interval float64) (requests, tokens int) {
	x.each(now, func(r told) {
		n, k := r.Takes(now, at, interval)
		requests, tokens = requests+n, tokens+k
	})
	return requests, tokens
}

// Slack implements model.Later. The engine's own view in the snapshot was shown at this moment.
func (x *window) Slack(now float64, p *model.Params) float64 {
	var v model.EngineView
	x.show(&v, now)
	s := model.NewSlack(now+v.Backlog(now), v.Kappa()*v.Curve.Interval(v.DecodeRequests, v.DecodeTokens), p)
	x.each(now, func(r told) {
		if r.first > 0 {
			s.Decoding(r.first, r.output, r.Remaining)
		} else {
			s.Waiting(r.arrived, max(now, r.Ready))
		}
	})
	return s.Seconds()
}

// queued is the predicted prefill of the prompts that should not be done by now, and their tokens.
func (x *window) queued(now float64) (seconds float64, tokens int) {
	end := x.now.view.PrefillFree
	for i := len(x.now.prompts) - 1; i >= 0 && end > now; i-- {
		q := x.now.prompts[i]
		seconds, tokens, end = seconds+q.own, tokens+q.tokens, end-q.own
	}
	for i := range x.since {
		if g := &x.since[i]; g.p && g.at+g.j.queue+g.j.own > now {
			seconds, tokens = seconds+g.j.own, tokens+g.j.input
		}
	}
	return seconds, tokens
}

// resident is what decodes on an engine or waits to, without those that are still in prefill
// elsewhere.
func (x *window) resident(now float64) (requests, tokens int) {
	x.each(now, func(r told) {
		if r.Ready <= now {
			requests, tokens = requests+1, tokens+r.Tokens
		}
	})
	return requests, tokens
}

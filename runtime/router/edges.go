package router

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// edge is a prefill engine and the decode engine that reads its KV. One can be broken although both
// engines are well: they cannot reach each other, or are not compatible.
type edge struct{ p, d *node }

// strain is what is known against an edge.
type strain struct {
	failures int     // in a row, before the first token
	trying   bool    // somebody finds out now
	next     float64 // not tried before
	barred   bool    // out of placement
	since    float64 // of the bar
	renewed  bool    // the decode engine was told to forget what it knows of the other one
}

// strainPause is how long an edge whose failures were not its own is not tried again, in seconds.
const strainPause = 10

// strain counts a failed attempt against the edge that it went over, and has the edge tried at
// recovery.eject_after of them in a row.
func (r *Router) strain(f *failure, l *claim) {
	if !ofTransfer(f, l, r.set.dialect.Concurrent()) {
		return
	}
	e, try := edge{l.p, l.d}, false
	r.own.do(func() { try = r.own.strained(e) })
	if try {
		r.background.Go(func() { r.tryEdge(e) })
	}
}

// ofTransfer reports whether an attempt failed while its KV could still have been on its way. Where both
// legs run at once either of them may be the one that says so.
func ofTransfer(f *failure, l *claim, concurrent bool) bool {
	if l == nil || l.p == l.d || f.gone || l.tokens.Load() > 0 || f.phase != phaseDecode && !(concurrent && f.phase == phasePrefill) {
		return false
	}
	return f.class == classStream || f.class == classInference || concurrent && (f.class == classTimeout || f.upstream == 503)
}

// strained counts a failure and reports whether the edge is to be tried.
func (o *owner) strained(e edge) bool {
	s := o.edges[e]
	if s == nil {
		s = &strain{}
		o.edges[e] = s
	}
	s.failures++
	if s.failures < max(1, o.set.Fleet.Recovery.EjectAfter) || s.barred || s.trying || e.d.verifying == probeInference || o.now() < s.next {
		return false
	}
	s.trying = true
	return true
}

// eased notes that KV arrived over an edge.
func (o *owner) eased(l *claim) {
	if s := o.edges[edge{l.p, l.d}]; s != nil && !s.barred && !s.trying {
		delete(o.edges, edge{l.p, l.d})
	}
}

// tryEdge sends a token over an edge that failed, and bars it if only it is broken.
func (r *Router) tryEdge(e edge) {
	c := r.send(r.life, e)
	broken := c.edge(r.set.dialect.Concurrent()) && r.elsewhere(r.life, e)
	r.own.do(func() {
		o := r.own
		s := o.edges[e]
		if s == nil { // one of the two is another process since
			return
		}
		s.trying, s.failures, s.next = false, 0, o.now()+strainPause
		if broken && r.life.Err() == nil {
			o.bar(e, c)
		}
	})
}

// send is cross over an edge.
func (r *Router) send(ctx context.Context, e edge) crossing {
	var f facts
	r.own.do(func() { f = e.p.facts })
	return r.cross(ctx, e.p, f, e.d)
}

// edge reports whether a failed crossing may be the fault of the edge alone. A prefilling leg that ends
// before the other one begins is the fault of its engine.
func (c crossing) edge(concurrent bool) bool {
	return !c.passed() && !local(c.produce) && !local(c.consume) && (concurrent || c.produce == nil)
}

// elsewhere reports whether the decode engine of an edge reads the KV of another engine.
func (r *Router) elsewhere(ctx context.Context, e edge) bool {
	var p *node
	r.own.do(func() {
		o := r.own
		p = o.idlest(model.Prefill, func(m *node) bool { return m != e.p && m != e.d && !o.isBarred(edge{m, e.d}) })
	})
	return p != nil && r.send(ctx, edge{p, e.d}).passed()
}

func (o *owner) isBarred(e edge) bool {
	s := o.edges[e]
	return s != nil && s.barred
}

// bar keeps requests off an edge until KV goes over it again.
func (o *owner) bar(e edge, c crossing) {
	s := o.edges[e]
	if s == nil {
		s = &strain{}
		o.edges[e] = s
	}
	if s.barred {
		return
	}
	s.barred, s.since = true, o.now()
	why := c.consume
	if why == nil {
		why = c.produce
	}
	text := faultText(why)
	o.set.Logger.Warn("pair barred", "prefill", e.p.id, "decode", e.d.id, "error", text)
	o.event("pair_barred", s.since, map[string]any{"producer": e.p.id, "consumer": e.d.id, "error": text})
	o.ejectMute()
}

// ejectMute ejects prefill engines whose KV nobody reads.
func (o *owner) ejectMute() {
	for _, p := range o.nodes {
		if p.live() && o.mute(p) && o.covered(p) {
			o.eject(p, causeInference)
		}
	}
}

// mute reports whether no decode engine reads the KV of a prefill engine, and several say so.
func (o *owner) mute(p *node) bool {
	n := 0
	for _, d := range o.nodes {
		if d == p || !d.live() || d.role != model.Decode {
			continue
		}
		if !o.isBarred(edge{p, d}) {
			return false
		}
		n++
	}
	return p.role == model.Prefill && n > 1
}

// errMute keeps an engine out whose KV nobody reads.
var errMute = errors.New("no decode engine reads its KV")

// unbar ends a bar.
func (o *owner) unbar(e edge, cause string) {
	s := o.edges[e]
	delete(o.edges, e)
	if s == nil || !s.barred {
		return
	}
	now := o.now()
	o.set.Logger.Info("pair restored", "prefill", e.p.id, "decode", e.d.id, "cause", cause)
	o.event("pair_restored", now, map[string]any{"producer": e.p.id, "consumer": e.d.id, "cause": cause, "barred_s": now - s.since})
}

// Causes of the end of a bar.
const (
	unbarPassed  = "passed"
	unbarProcess = "process"
	unbarRole    = "role"
)

// unbarAll ends the bars of an engine's edges, and what is known against them.
func (o *owner) unbarAll(n *node, cause string) {
	for e := range o.edges {
		if e.p == n || e.d == n {
			o.unbar(e, cause)
		}
	}
}

// retryBarred tries edges that are barred again, beside the sweep: they may take their time.
func (r *Router) retryBarred() {
	var list []edge
	r.own.do(func() {
		r.own.ejectMute() // a decode engine may have been out when its last pair was barred
		for e, s := range r.own.edges {
			if s.barred && !s.trying && (e.p.live() || r.own.mute(e.p)) && e.d.live() && e.p.role == model.Prefill && e.d.role == model.Decode {
				s.trying = true
				list = append(list, e)
			}
		}
	})
	for _, e := range list {
		r.background.Go(func() { r.retryEdge(e) })
	}
}

func (r *Router) retryEdge(e edge) {
	passed := r.send(r.life, e).passed() || r.renewOnce(e) && r.send(r.life, e).passed()
	r.own.do(func() {
		s := r.own.edges[e]
		switch {
		case s == nil:
		case passed:
			r.own.unbar(e, unbarPassed)
		default:
			s.trying = false
		}
	})
}

// renewOnce has the decode engine of a barred edge forget the addresses that it keeps, once, and reports
// whether it has: it may keep one that is no longer right.
func (r *Router) renewOnce(e edge) bool {
	sw, ok := r.dialect.(engine.Switcher)
	if !ok || r.life.Err() != nil {
		return false
	}
	may := false
	r.own.do(func() {
		s := r.own.edges[e]
		may = s != nil && !s.renewed && !e.d.pinned
	})
	if !may {
		return false
	}
	ctx, cancel := context.WithTimeout(r.life, switchLimit)
	defer cancel()
	if err := r.renew(ctx, sw, e.d, e.p); err != nil {
		r.set.Logger.Warn("engine not renewed", "engine", e.d.id, "reason", err.Error())
		return false
	}
	r.own.do(func() {
		if s := r.own.edges[e]; s != nil {
			s.renewed = true
		}
	})
	return true
}

// barred are the edges that placement leaves out, in the fleet's order: none where nothing else is left.
func (o *owner) barred() (list []model.Edge) {
	for e, s := range o.edges {
		if s.barred {
			list = append(list, model.Edge{Prefill: slices.Index(o.nodes, e.p), Decode: slices.Index(o.nodes, e.d)})
		}
	}
	if len(list) == 0 || !o.leftOver() {
		return nil
	}
	slices.SortFunc(list, func(a, b model.Edge) int {
		return cmp.Or(cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
	})
	return list
}

// leftOver reports whether a live pair is not barred.
func (o *owner) leftOver() bool {
	for _, p := range o.nodes {
		for _, d := range o.nodes {
			if p.live() && d.live() && p.role == model.Prefill && d.role == model.Decode && !o.isBarred(edge{p, d}) {
				return true
			}
		}
	}
	return false
}

// barredState lists the barred edges, in the fleet's order.
func (o *owner) barredState() []object {
	list := []object{}
	now := o.now()
	for _, p := range o.nodes {
		for _, d := range o.nodes {
			if s := o.edges[edge{p, d}]; s != nil && s.barred {
				list = append(list, object{"producer": p.id, "consumer": d.id, "barred_s": now - s.since})
			}
		}
	}
	return list
}

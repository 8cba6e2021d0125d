package router

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// An engine that holds prefills is looked at once the first of them takes this many times what it
// was priced at, and nothing of what the engine was given has moved for that long. One that says
// that it runs a batch has runningLater times as long: its step may be a long one.
const (
	muchLater    = 8
	runningLater = 4
)

// late reports whether an engine's first prefill takes so long, with times as much patience, that
// the engine is looked at. It is never said of an engine whose legs have moved lately: a first
// token or the end of a prefill on it counts.
func (n *node) late(now, least, times float64) bool {
	if made := n.made.Load(); made != n.movedMade {
		n.movedAt, n.movedMade = now, made
	}
	if len(n.prefilling) == 0 {
		return false
	}
	first := n.prefilling[0]
	since := max(first.at, n.movedAt)
	together := 0.0 // a step may hold all that had come by then
	for _, l := range n.prefilling {
		if l.at <= since {
			together += l.own
		}
	}
	priced := max(0, first.at+first.queue-since) + max(first.own, together)*max(1, n.risk)
	return now-since > times*max(least, muchLater*priced)
}

// watchProgress has engines that are late looked at. Where both legs run at once the decode leg's
// own limits tell.
func (o *owner) watchProgress(now float64) {
	if o.set.checkProgress == nil || o.set.dialect.Concurrent() {
		return
	}
	for _, n := range o.nodes {
		if n.late(now, o.set.firstToken.Seconds(), 1) && n.askable() && !n.looking {
			n.looking = true
			o.set.checkProgress(n)
		}
	}
}

// askable reports whether nobody asks or suspects the engine already.
func (n *node) askable() bool {
	return n.ejected == "" && !n.draining && n.verifying == "" && (n.hold == nil || n.hold.kind != holdInference)
}

// checkProgress looks twice at an engine that is late. When nothing of what it counts has moved it
// is asked for a token, and ejected when it makes none and has still not moved. All of this takes
// a monitoring pass and the time of a probe.
func (r *Router) checkProgress(n *node) {
	defer r.own.do(func() { n.looking = false })
	ctx := r.life
	before := r.counters(ctx, n)
	if before == nil || !pause.For(ctx, r.set.interval) || r.moved(ctx, n, before) {
		return
	}
	ask := false
	r.own.do(func() { ask = r.own.doubt(n, before) })
	if !ask {
		return
	}
	least := time.Now().Add(r.set.legLimit())
	outcome, err := r.retest(ctx, n)
	refused := errors.Is(err, syscall.ECONNREFUSED)
	moved := false
	if outcome == outcomeFailed && !refused {
		moved = !pause.For(ctx, time.Until(least)) || r.moved(ctx, n, before) // however soon the probe failed
	}
	if ctx.Err() == nil {
		r.own.do(func() { r.own.resolve(n, outcome, refused, moved) })
	}
}

// doubt holds an engine that has not moved while it is asked for a token, and reports whether it
// is to be asked.
func (o *owner) doubt(n *node, st *engine.State) bool {
	times := 1.0
	if st.Running > 0 {
		times = runningLater
	}
	if !n.askable() || n.waitsForRoom(st) || !n.late(o.now(), o.set.firstToken.Seconds(), times) {
		return false
	}
	n.verifying = probeInference
	o.quarantine(n, holdInference, "")
	return true
}

// waitsForRoom reports whether the KV cache has no room for the first prompt: then it waits until
// handoffs are read or their leases end.
func (n *node) waitsForRoom(st *engine.State) bool {
	return len(n.prefilling) > 0 && (1-st.Usage)*float64(n.room()) < float64(n.prefilling[0].input+n.facts.blockSize)
}

// resolve ends the doubt about an engine by its probe and by what it has counted meanwhile. The
// prefills of one that is stuck end, so that they go on elsewhere.
func (o *owner) resolve(n *node, outcome string, refused, moved bool) {
	n.verifying = ""
	switch {
	case n.ejected != "":
	case outcome == outcomePassed:
		n.movedAt = o.now()
		o.unhold(n, endVerification)
		o.absolve(n, classes...)
	case refused:
		o.eject(n, causeConnection)
	case outcome == outcomeFailed && !moved:
		o.eject(n, causeInference)
		n.cutPrefills()
	default:
		o.unhold(n, endVerification)
		delete(n.sources, "")
	}
}

// cutPrefills ends the legs whose prefill has not ended.
func (n *node) cutPrefills() {
	for _, l := range n.prefilling {
		if l.cut != nil {
			l.cut(errStuck)
		}
	}
}

// moved reports whether an engine has worked since a scrape, as far as it tells: what it does not
// tell speaks for it.
func (r *Router) moved(ctx context.Context, n *node, before *engine.State) bool {
	now := r.counters(ctx, n)
	if now == nil {
		return true
	}
	moved := worked(before, now)
	if moved {
		r.own.do(func() { n.movedAt = r.own.now() })
	}
	return moved
}

// worked reports whether the scheduler of an engine has run between two scrapes. What also moves
// without it, such as leases that end and requests that are aborted, does not count.
func worked(a, b *engine.State) bool {
	type work [11]float64
	of := func(s *engine.State) work {
		return work{s.ProcessStart, s.Iterations, s.IterationSum, s.GenerationTokens, s.PromptTokens, s.FinishedOK, s.LocalCompute, s.LocalHit,
			s.Transfers, s.PrefillTime.Count, s.FirstToken.Count}
	}
	return of(a) != of(b)
}

// counters is scrape within the limit of a health probe.
func (r *Router) counters(ctx context.Context, n *node) *engine.State {
	ctx, cancel := context.WithTimeout(ctx, r.set.health)
	defer cancel()
	return r.scrape(ctx, n)
}

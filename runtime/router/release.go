package router

import (
	"context"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// releaseAt are the moments after an engine's stop, in seconds, at which its former peers
// read KV from somebody else once: a consumer drops what it mapped of a producer only while
// it sets up another transfer.
var releaseAt = [...]float64{65, 125, 245, 485, 965, 1925, 3845}

// releaseRetry is how long a consumer waits before it is given another producer, seconds.
const releaseRetry = 5.0

// nextRelease is the moment of the round after the given number of them; false after the last.
func nextRelease(stopped float64, rounds int) (at float64, ok bool) {
	if rounds < 0 || rounds >= len(releaseAt) {
		return 0, false
	}
	return stopped + releaseAt[rounds], true
}

// dueReleases is how many rounds are over or due at now. Rounds that were missed are one.
func dueReleases(stopped, now float64) (n int) {
	for n < len(releaseAt) && now >= stopped+releaseAt[n] {
		n++
	}
	return n
}

// release is how far the peers of one stopped engine are.
type release struct {
	stopped float64 // router clock, seconds
	rounds  int
	retries []retryRead
}

// retryRead is a consumer whose producer failed, once more with the next one.
type retryRead struct {
	at       float64
	consumer *node
	failed   *node
}

// read is one crossed probe that a round owes.
type read struct {
	stopped, consumer, producer *node
	facts                       facts // of the producer
	again                       bool
}

// stoppedNow reports whether an engine has left its peers with mappings of a process that
// no longer serves them.
func (n *node) stoppedNow() bool {
	return n.ejected != "" || n.draining && n.state != stateDraining
}

// releases follows which engines have stopped and lists the reads that are due.
func (o *owner) releases(now float64) (due []read) {
	if o.set.dialect.Concurrent() || o.set.wholeWave() {
		return nil
	}
	for _, n := range o.nodes {
		switch {
		case !n.stoppedNow():
			n.released = nil
			continue
		case n.released == nil:
			n.released = &release{stopped: now}
		}
		rel := n.released
		if rounds := dueReleases(rel.stopped, now); rounds > rel.rounds {
			rel.rounds = rounds
			for _, m := range o.nodes {
				due = o.readBy(due, n, m, nil)
			}
		}
		rel.retries = slices.DeleteFunc(rel.retries, func(x retryRead) bool {
			if now < x.at {
				return false
			}
			due = o.readBy(due, n, x.consumer, x.failed)
			return true
		})
	}
	return due
}

// readBy adds a read of a live consumer from a producer other than the stopped engine and
// the one that has failed already.
func (o *owner) readBy(due []read, stopped, consumer, failed *node) []read {
	if !consumer.live() || consumer == stopped || !o.may(consumer, model.Decode) {
		return due
	}
	var best *node
	for i := range o.nodes {
		// The one after the consumer first, so that no producer has all the work.
		p := o.nodes[(slices.Index(o.nodes, consumer)+1+i)%len(o.nodes)]
		if p == consumer || p == stopped || p == failed || !p.live() || !o.may(p, model.Prefill) {
			continue
		}
		if best == nil || best.role != model.Prefill && p.role == model.Prefill {
			best = p
		}
	}
	if best == nil {
		return due
	}
	return append(due, read{stopped, consumer, best, best.facts, failed != nil})
}

// releasePeers carries out reads, one after the other.
func (r *Router) releasePeers(ctx context.Context, due []read) {
	for _, x := range due {
		c := r.cross(ctx, x.producer, x.facts, x.consumer)
		if ctx.Err() != nil {
			return
		}
		r.own.do(func() { r.own.endRead(x, c) })
	}
}

// endRead notes a read; a failed producer is replaced once.
func (o *owner) endRead(x read, c crossing) {
	if c.passed() {
		return
	}
	err, side := c.produce, x.producer
	if err == nil {
		err, side = c.consume, x.consumer
	}
	o.set.Logger.Warn("peer release failed", "stopped", x.stopped.id, "consumer", x.consumer.id, "producer", x.producer.id, "failed", side.id, "error", err.Error())
	if rel := x.stopped.released; rel != nil && c.produce != nil && !x.again {
		rel.retries = append(rel.retries, retryRead{o.now() + releaseRetry, x.consumer, x.producer})
	}
}

// releaseState is peer_release of the state: rounds done and seconds to the next.
func (o *owner) releaseState() object {
	out := object{}
	for _, n := range o.nodes {
		if n.released == nil {
			continue
		}
		var next any
		if at, ok := nextRelease(n.released.stopped, n.released.rounds); ok {
			next = max(0, at-o.now())
		}
		out[n.id] = object{"rounds": n.released.rounds, "next_round_s": next}
	}
	return out
}

// startReleases looks for reads that are due, unless the former ones still run.
func (r *Router) startReleases() {
	if !r.releasing.CompareAndSwap(false, true) {
		return
	}
	var due []read
	r.own.do(func() { due = r.own.releases(r.own.now()) })
	if len(due) == 0 {
		r.releasing.Store(false)
		return
	}
	r.background.Go(func() {
		defer r.releasing.Store(false)
		r.releasePeers(r.watching, due)
	})
}

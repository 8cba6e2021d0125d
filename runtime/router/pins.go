package router

import "slices"

// stray is KV that a producer holds for a handoff that nobody will read: it stays until the
// lease ends.
type stray struct {
	until  float64 // router clock
	tokens int
}

// pin counts the KV that a producer holds from its answer on.
func (o *owner) pin(l *claim) {
	if l.p != l.d {
		l.pinned = true
		l.p.held += l.input
		l.p.outstanding++
	}
}

// unpin ends the count. A handoff that was never sent to a reader keeps its blocks for the
// whole lease; one that was sent is freed by the reader, read or not.
func (o *owner) unpin(l *claim, now float64) {
	if !l.pinned {
		return
	}
	l.pinned = false
	l.p.outstanding--
	if l.sent.Load() {
		l.p.held -= l.input
		return
	}
	o.n.strayHandoffs++
	l.p.strays = append(l.p.strays, stray{now + o.set.leaseOf(l.p), l.input})
}

// settleStrays lets go of what leases have freed.
func (n *node) settleStrays(now float64) {
	n.strays = slices.DeleteFunc(n.strays, func(s stray) bool {
		if s.until <= now {
			n.held -= s.tokens
		}
		return s.until <= now
	})
}

// defaultLease is how long an engine holds unread KV unless it was told otherwise, seconds.
const defaultLease = 30.0

func (s *settings) leaseOf(n *node) float64 {
	if n.facts.lease > 0 {
		return n.facts.lease
	}
	return defaultLease
}

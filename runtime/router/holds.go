package router

import "github.com/narwhal-fleet/narwhal/runtime/model"

// Kinds of a hold, and causes of its end, as the contract names them.
const (
	holdTimed     = "timed"     // recovery.failure_quarantine_s after a failed leg
	holdInference = "inference" // until a probe of the suspect has ended

	endExpired      = "expired"
	endSuperseded   = "superseded"
	endHealth       = "health"
	endVerification = "verification"
	endLifecycle    = "lifecycle"
	endEjected      = "ejected"
	endDrained      = "drained"
	endUncovered    = "uncovered"
)

// hold keeps an engine out of placement although it is not ejected.
type hold struct {
	kind  string
	since float64
	until float64 // 0 = no deadline
}

// may reports whether an engine may take a leg of a role: its own, and the other one unless it is
// pinned or its role is a state of its process.
func (o *owner) may(n *node, role model.Role) bool {
	return o.aggregated || n.role == role || !n.pinned && !o.set.params.FixedRoles
}

// covered reports whether the other live engines may take every leg that n may take.
func (o *owner) covered(n *node) bool {
	p, d := !o.may(n, model.Prefill), !o.may(n, model.Decode)
	for _, m := range o.nodes {
		if m != n && m.live() {
			p, d = p || o.may(m, model.Prefill), d || o.may(m, model.Decode)
		}
	}
	return p && d
}

// quarantine holds a covered engine. A timed hold never replaces one of the other kind.
func (o *owner) quarantine(n *node, kind, source string) {
	if n.ejected != "" || n.draining {
		return
	}
	if kind == holdInference {
		n.suspect(source)
	}
	now := o.now()
	if h := n.hold; h != nil && (h.kind == holdInference || kind == holdTimed) {
		if h.kind == holdTimed {
			h.until = now + o.set.Fleet.Recovery.FailureQuarantineS
		}
		return
	}
	if !o.covered(n) {
		return
	}
	h := &hold{kind: kind, since: now}
	var lasts any
	if kind == holdTimed {
		h.until = now + o.set.Fleet.Recovery.FailureQuarantineS
		lasts = o.set.Fleet.Recovery.FailureQuarantineS
	}
	o.unhold(n, endSuperseded)
	n.hold = h
	o.n.holdStarts[[2]string{n.id, kind}]++
	o.publish()
	o.event("engine_hold_started", now, map[string]any{"iid": n.id, "kind": kind, "duration_s": lasts})
}

// unhold ends a hold, if there is one.
func (o *owner) unhold(n *node, cause string) {
	h := n.hold
	if h == nil {
		return
	}
	n.hold = nil
	now := o.now()
	o.n.holdEnds[[3]string{n.id, h.kind, cause}]++
	o.publish()
	o.event("engine_hold_ended", now, map[string]any{"iid": n.id, "kind": h.kind, "cause": cause, "held_s": now - h.since})
}

// settleHolds ends holds whose time is over, and those of engines that nobody covers now.
func (o *owner) settleHolds(now float64) {
	for _, n := range o.nodes {
		switch h := n.hold; {
		case h == nil:
		case h.until > 0 && now >= h.until:
			o.unhold(n, endExpired)
		case !o.covered(n):
			o.unhold(n, endUncovered)
		}
	}
}

package router

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// monitor ticks the owner every interval and probes engines beside it until ctx ends. A
// sweep that is still running when the next is due is not started twice.
func (r *Router) monitor(ctx context.Context) {
	t := time.NewTicker(r.set.interval)
	defer t.Stop()
	var probes sync.WaitGroup
	defer probes.Wait()
	busy := make(chan struct{}, 1)
	rec := r.set.Fleet.Recovery
	for pass := 1; ; pass++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r.own.do(r.own.tick)
		r.saveState()
		if bodies, answers := r.bodies.spent(), r.answers.spent(); bodies || answers {
			r.background.Go(debug.FreeOSMemory)
		}
		if !r.own.view.Load().controls() {
			continue
		}
		sweep := rec.LivenessEvery > 0 && pass%rec.LivenessEvery == 0
		readmit := pass%max(1, rec.ReadmitEvery) == 0
		r.startReleases()
		if !sweep && !readmit {
			continue
		}
		select {
		case busy <- struct{}{}:
			probes.Go(func() {
				defer func() { <-busy }()
				r.probe(ctx, sweep, readmit)
			})
		default:
		}
	}
}

// tick is one monitoring pass: gaps, drains, floors, and one controller evaluation if due.
// A router that does not control the fleet only keeps its books.
func (o *owner) tick() {
	now := o.now()
	failed := ""
	o.stage("rollover", &failed, func() { o.rollover(now) })
	o.stage("telemetry", &failed, func() { o.watchFloor(now) })
	p := o.view.Load()
	if p.controls() {
		o.stage("health", &failed, func() {
			o.watchDrift(now)
			o.watchProgress(now)
		})
	}
	if o.wave == "" && o.required == "" && !o.stopping && p.controls() {
		o.stage("controller", &failed, func() { o.control(now) })
	}
	o.degrade(failed)
}

func (o *owner) rollover(now float64) {
	r := o.set.Fleet.Controller.Reactive
	for _, n := range o.nodes {
		n.rollGap(now, o.set.interval.Seconds(), o.memory(), r.DecodeCorrectionMin, r.DecodeCorrectionMax, r.DecodeCorrectionMinSamples)
		n.closeDrains(now)
		n.settleStrays(now)
		o.settleDrain(n, now)
	}
	o.presume()
	o.settleHolds(now)
}

func (o *owner) control(now float64) {
	snap, was := o.snapshot(now), o.ctl
	if o.journal != nil {
		o.notes.Watch(&snap)
	}
	var actions []control.Action
	o.ctl, actions = control.Step(was, control.Tick{Snapshot: snap})
	var from *replay.Evaluation
	if o.journal != nil && len(actions) > 0 {
		from = &replay.Evaluation{Fleet: o.notes.Fleet(&snap), State: was}
	}
	for _, a := range actions {
		switch a := a.(type) {
		case control.Move:
			o.move(a, now)
		case control.Record:
			o.record(a.Decision, from)
		}
	}
}

// relabel gives an engine its new role.
func (o *owner) relabel(n *node, m control.Move, now float64) {
	from := n.role
	n.role, n.roleSince = m.To, now
	f := &flip{At: now, IID: n.id, To: string(m.To), By: m.By, Prefill: len(n.prefilling), Decode: len(n.pending) + len(n.decoding)}
	o.n.flipPrefill += f.Prefill
	o.n.flipDecode += f.Decode
	if o.n.lastMove != "" && o.n.lastMove != f.To {
		o.n.reversals++
	}
	o.n.lastMove = f.To
	o.publish()
	o.moves[m.By+":"+f.To]++
	o.flips = append(o.flips, f)
	if limit := max(1, o.set.Fleet.Controller.FlipHistory); len(o.flips) > limit {
		o.flips = o.flips[len(o.flips)-limit:]
	}
	n.drains = append(n.drains, f)
	o.set.Logger.Info("role moved", "engine", n.id, "from", string(from), "to", f.To, "by", m.By, "rule", m.Rule)
	o.floorRestored(m, now)
	o.event("role_moved", now, map[string]any{"iid": n.id, "from": string(from), "to": f.To, "by": m.By, "rule": m.Rule,
		"prefill_inflight": f.Prefill, "decode_inflight": f.Decode})
}

// closeDrains notes when the residents of the former role have left.
func (n *node) closeDrains(now float64) {
	var busy bool
	if n.role == model.Prefill {
		busy = len(n.pending)+len(n.decoding) > 0
	} else {
		busy = len(n.prefilling) > 0
	}
	if busy {
		return
	}
	for _, f := range n.drains {
		f.Drained = ptr(now - f.At)
	}
	n.drains = nil
}

// record keeps a decision of the controller; from is what the journal tells of its inputs.
func (o *owner) record(d control.Decision, from *replay.Evaluation) {
	o.last = &d
	o.noteDecision(d.At)
	o.decisions[d.By+":"+d.Result]++
	if d.Result == control.Blocked {
		to := "prefill"
		if d.Prefill < d.CurrentPrefill {
			to = "decode"
		}
		o.n.flipsRefused++
		o.refusedBy = append(o.refusedBy, refusedFlip{At: d.At, To: to, Why: d.Reason})
		if len(o.refusedBy) > 20 {
			o.refusedBy = o.refusedBy[len(o.refusedBy)-20:]
		}
	}
	if o.journal != nil {
		fields := o.decisionFields(d)
		if from != nil {
			fields["inputs"] = from
		}
		o.event("controller_decision", d.At, fields)
	}
}

func (o *owner) watchFloor(now float64) {
	live, ejected := 0, []string{}
	has := false
	for _, n := range o.nodes {
		has = has || n.role == model.Prefill
		if n.role == model.Prefill && n.live() {
			live++
		}
		if n.ejected != "" {
			ejected = append(ejected, n.id)
		}
	}
	below := has && live < o.set.control.MinPrefill
	switch {
	case below && !o.n.belowFloor:
		o.n.belowFloor, o.n.belowFloorSince = true, now
		o.n.breaches++
		o.event("below_floor", now, map[string]any{"live_prefill": live, "min_prefill": o.set.control.MinPrefill, "ejected": ejected, "quarantined": []string{}})
	case !below && o.n.belowFloor:
		o.n.belowFloor = false
		o.n.belowFloorTotal += now - o.n.belowFloorSince
		o.event("below_floor_recovered", now, map[string]any{"duration_s": now - o.n.belowFloorSince, "live_prefill": live, "min_prefill": o.set.control.MinPrefill})
	}
}

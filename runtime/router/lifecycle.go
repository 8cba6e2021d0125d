package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Lifecycle states of an engine.
const (
	stateActive   = "active"
	stateDraining = "draining"
	stateDrained  = "drained"
	stateExceeded = "deadline_exceeded"
	stateBlocked  = "blocked"
)

// lifecycleDoc is narwhal.lifecycle version 1. Inside /narwhal/state the first two and
// the last member are absent.
type lifecycleDoc struct {
	Schema        string                    `json:"schema,omitempty"`
	Version       int                       `json:"schema_version,omitempty"`
	Policy        string                    `json:"engine_restart_policy"`
	ProcessStarts map[string]float64        `json:"process_starts"`
	Router        lifecycleRouter           `json:"router"`
	Wave          lifecycleWave             `json:"wave"`
	Engines       map[string]lifecycleState `json:"engines"`
	Events        []json.RawMessage         `json:"events"`
	Error         *string                   `json:"error,omitempty"`
}

type lifecycleRouter struct {
	Controls bool `json:"controls_fleet"`
	Ready    bool `json:"ready"`
}

type lifecycleWave struct {
	ID     string `json:"id"`
	Active bool   `json:"active"`
	Ready  bool   `json:"ready_to_stop"`
}

type lifecycleState struct {
	State    string      `json:"state"`
	Draining bool        `json:"draining"`
	Accepts  bool        `json:"accepts_new"`
	Ready    bool        `json:"ready_to_stop"`
	Resident phases[int] `json:"resident"`
	Deadline *float64    `json:"deadline_at"`
	Restart  bool        `json:"restart_required"`
	Wave     string      `json:"wave_id"`
	Old      *float64    `json:"old_process_start"`
	New      *float64    `json:"new_process_start"`
	Checks   []string    `json:"checks"`
	Error    string      `json:"error"`
}

func (n *node) resident() (prefill, decode int) { return len(n.prefilling), len(n.decoding) }

func (n *node) idle() bool { return len(n.prefilling)+len(n.pending)+len(n.decoding) == 0 }

func (o *owner) lifecycle() lifecycleDoc {
	p := o.view.Load()
	d := lifecycleDoc{Policy: o.set.Fleet.Recovery.EngineRestartPolicy, ProcessStarts: map[string]float64{},
		Router: lifecycleRouter{p.controls(), p.reason() == ""}, Wave: lifecycleWave{ID: o.wave, Active: o.wave != ""}, Engines: map[string]lifecycleState{}, Events: append([]json.RawMessage{}, o.lifeEvents...)}
	d.Wave.Ready = d.Wave.Active
	for _, n := range o.nodes {
		pre, dec := n.resident()
		s := lifecycleState{State: n.state, Draining: n.draining, Accepts: n.live() && o.wave == "", Resident: map[string]int{"prefill": pre, "decode": dec},
			Checks: []string{}, Error: n.fault, Ready: n.state == stateDrained}
		if o.wave != "" {
			s.Wave, s.Ready = o.wave, n.idle()
		}
		if n.draining && n.deadline > 0 {
			s.Deadline = ptr(o.unix(n.deadline))
		}
		if n.known {
			d.ProcessStarts[n.id] = n.facts.identity.ProcessStart
		}
		d.Wave.Ready = d.Wave.Ready && n.idle()
		d.Engines[n.id] = s
	}
	return d
}

// settleDrain moves a draining engine on when its residents have left or its time is up.
func (o *owner) settleDrain(n *node, now float64) {
	if !n.draining || n.state == stateDrained {
		return
	}
	action := ""
	switch {
	case n.idle():
		n.state, action = stateDrained, "drain_complete"
	case n.state == stateDraining && n.deadline > 0 && now > n.deadline:
		n.state, action = stateExceeded, "drain_deadline_exceeded"
	}
	if action != "" {
		o.lifecycleEvent(n, action)
	}
}

func (o *owner) lifecycleEvent(n *node, action string) {
	f := o.lifecycleFields(n, action)
	if n != nil {
		p, d := n.resident()
		f["iid"], f["resident"] = n.id, map[string]int{"prefill": p, "decode": d}
	}
	wall := o.unix(o.now())
	o.rememberLifecycle(wall, f)
	noted("engine_lifecycle", f)
	if o.journal != nil {
		o.journal.Event(journal.Event{Name: "engine_lifecycle", At: wall, AtUnix: wall, Fields: f})
	}
}

// order is the body of a lifecycle call.
type order struct {
	Engines  []string `json:"engines"`
	Wave     bool     `json:"wave"`
	Deadline *float64 `json:"deadline_s"`
}

const maxOrderBytes = 64 << 10

func readOrder(w http.ResponseWriter, q *http.Request) (order, bool) {
	var o order
	b, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxOrderBytes))
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []any{map[string]any{"type": "json_invalid", "loc": []string{"body"}, "msg": "body does not fit its types", "input": nil}}})
		return o, false
	}
	return o, true
}

func (r *Router) lifecycleAnswer(w http.ResponseWriter, status int, problem string) {
	var d lifecycleDoc
	r.own.do(func() { d = r.own.lifecycle() })
	d.Schema, d.Version, d.Error = "narwhal.lifecycle", 1, &problem
	writeJSON(w, status, d)
}

func (r *Router) getLifecycle(w http.ResponseWriter, _ *http.Request) {
	r.lifecycleAnswer(w, http.StatusOK, "")
}

// drain takes one engine out of placement, or with wave every engine: then no request is
// admitted at all until readmit with wave. Residents finish.
func (r *Router) drain(w http.ResponseWriter, q *http.Request) {
	ord, ok := readOrder(w, q)
	if !ok {
		return
	}
	limit := 300.0
	if ord.Deadline != nil {
		limit = *ord.Deadline
	}
	problem := ""
	r.own.do(func() {
		if limit <= 0 || math.IsInf(limit, 0) || math.IsNaN(limit) {
			problem = "deadline_s must be positive and finite"
			return
		}
		if ord.Wave {
			problem = r.own.hold(ord.Engines)
			return
		}
		problem = r.own.drainOne(ord.Engines, limit)
	})
	if problem != "" {
		r.lifecycleAnswer(w, http.StatusConflict, problem)
		return
	}
	r.lifecycleAnswer(w, http.StatusOK, "")
}

// hold stops admission for the whole fleet. Holding twice is one hold.
func (o *owner) hold(engines []string) string {
	if len(engines) > 0 && len(engines) != len(o.nodes) {
		return "a whole wave names every engine or none"
	}
	if o.wave == "" {
		o.wave, o.waveAt = requestID(), o.now()
		o.publish()
		o.set.Logger.Info("admission held", "wave", o.wave)
		o.lifecycleEvent(nil, "wave_started")
	}
	return ""
}

func (o *owner) drainOne(engines []string, limit float64) string {
	if len(engines) != 1 {
		return "name exactly one engine"
	}
	n := o.node(engines[0])
	if n == nil {
		return fmt.Sprintf("unknown engine %q", engines[0])
	}
	if o.set.wholeWave() {
		return "this fleet restarts as a whole: drain it with wave"
	}
	if n.draining {
		return ""
	}
	if !slices.ContainsFunc(o.nodes, func(m *node) bool { return m != n && m.live() }) {
		return "no other engine is live"
	}
	o.unhold(n, endDrained)
	n.requested = o.now()
	n.draining, n.state, n.fault, n.deadline = true, stateDraining, "", o.now()+limit
	o.publish()
	o.lifecycleEvent(n, "drain_started")
	if n.known {
		o.lifecycleEvent(n, "process_recorded")
	}
	o.settleDrain(n, o.now())
	return ""
}

// readmitCall ends a hold or returns a drained engine after asking who it is.
func (r *Router) readmitCall(w http.ResponseWriter, q *http.Request) {
	ord, ok := readOrder(w, q)
	if !ok {
		return
	}
	if ord.Wave {
		if problem := r.readmitWave(q.Context(), ord.Engines); problem != "" {
			r.lifecycleAnswer(w, http.StatusConflict, problem)
			return
		}
		r.lifecycleAnswer(w, http.StatusOK, "")
		return
	}
	if problem := r.readmitOne(q.Context(), ord.Engines); problem != "" {
		r.lifecycleAnswer(w, http.StatusConflict, problem)
		return
	}
	r.lifecycleAnswer(w, http.StatusOK, "")
}

// readmitWave examines every engine at once and ends the fleet-wide hold when all of them
// are well, told who they are and agree with each other. Otherwise the hold stays.
func (r *Router) readmitWave(ctx context.Context, engines []string) string {
	if len(engines) > 0 && len(engines) != len(r.own.nodes) {
		return "a whole wave names every engine or none"
	}
	found := make([]facts, len(r.own.nodes))
	errs := make([]error, len(r.own.nodes))
	var wg sync.WaitGroup
	for i, n := range r.own.nodes {
		wg.Go(func() { found[i], errs[i] = r.set.examine(ctx, n) })
	}
	wg.Wait()
	problem := ""
	r.own.do(func() {
		o := r.own
		for i, n := range o.nodes {
			if errs[i] != nil {
				n.state, n.fault = stateBlocked, errs[i].Error()
				problem = fmt.Sprintf("engine %s: %v", n.id, errs[i])
				o.lifecycleEvent(n, "validation_failed")
			}
		}
		if problem != "" {
			return
		}
		for i, n := range o.nodes {
			n.facts, n.known = found[i], true
		}
		for _, n := range o.nodes {
			if err := o.agrees(n, n.facts); err != nil {
				problem = err.Error()
				return
			}
		}
		o.openWave(found)
	})
	return problem
}

// openWave takes every engine back and admits again.
func (o *owner) openWave(found []facts) {
	held := o.wave != "" || o.required != ""
	for i, n := range o.nodes {
		if n.ejected != "" {
			o.readmit(n, found[i], "lifecycle")
		}
		o.unhold(n, endLifecycle)
		n.draining, n.state, n.fault, n.deadline = false, stateActive, "", 0
	}
	if held {
		o.lifecycleEvent(nil, "wave_readmitted")
	}
	o.wave, o.required = "", ""
	o.publish()
}

func (r *Router) readmitOne(ctx context.Context, engines []string) (problem string) {
	if len(engines) != 1 {
		return "name exactly one engine"
	}
	var n *node
	r.own.do(func() {
		if n = r.own.node(engines[0]); n == nil {
			problem = fmt.Sprintf("unknown engine %q", engines[0])
		} else if !n.draining {
			problem = "engine is not held"
		} else {
			r.own.lifecycleEvent(n, "validation_started")
		}
	})
	if problem != "" {
		return problem
	}
	f, err := r.set.examine(ctx, n)
	r.own.do(func() {
		var gen *generationError
		if err != nil {
			n.state, n.fault, problem = stateBlocked, err.Error(), err.Error()
			if errors.As(err, &gen) {
				problem = "profile generation: " + err.Error()
			}
			r.own.lifecycleEvent(n, "validation_failed")
			return
		}
		n.draining, n.state, n.fault, n.deadline = false, stateActive, "", 0
		n.facts, n.known = f, true
		r.own.lifecycleEvent(n, "readmitted")
		r.own.publish()
	})
	return problem
}

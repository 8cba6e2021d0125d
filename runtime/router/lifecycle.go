package router

import (
	"encoding/json"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Lifecycle states of an engine.
const (
	stateActive     = "active"
	stateDraining   = "draining"
	stateDrained    = "drained"
	stateExceeded   = "deadline_exceeded"
	stateValidating = "validating"
	stateBlocked    = "blocked"
)

// record is what an order left of an engine; it stays after the engine's return.
type record struct {
	wave     string   // id of the fleet-wide order that it belongs to; "" = none
	oldStart *float64 // of the process that was to be replaced, wall; nil = not told
	newStart *float64 // of the one that was readmitted
	checks   []string // of the last validation, as far as it came
	restart  bool     // its process must be another one to return
}

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
	Ejected  string      `json:"ejected_as,omitempty"` // cause of an ejection that stands
}

func (n *node) resident() (prefill, decode int) { return len(n.prefilling), len(n.decoding) }

func (n *node) idle() bool { return len(n.prefilling)+len(n.pending)+len(n.decoding) == 0 }

func (o *owner) lifecycle() lifecycleDoc {
	p := o.view.Load()
	d := lifecycleDoc{Policy: o.set.Fleet.Recovery.EngineRestartPolicy, ProcessStarts: map[string]float64{},
		Router:  lifecycleRouter{p.controls(), p.reason() == ""},
		Wave:    lifecycleWave{ID: o.wave, Active: o.wave != "", Ready: o.mayStop()},
		Engines: map[string]lifecycleState{}, Events: append([]json.RawMessage{}, o.lifeEvents...)}
	for _, n := range o.nodes {
		pre, dec := n.resident()
		s := lifecycleState{State: n.state, Draining: n.draining, Accepts: n.live() && o.wave == "", Resident: map[string]int{"prefill": pre, "decode": dec},
			Checks: append([]string{}, n.checks...), Error: n.fault, Ready: n.state == stateDrained, Wave: n.record.wave, Restart: n.restart, Ejected: n.ejected,
			Old: n.oldStart, New: n.newStart}
		if n.deadline > 0 {
			s.Deadline = ptr(o.unix(n.deadline))
		}
		if n.known {
			d.ProcessStarts[n.id] = n.facts.identity.ProcessStart
		}
		d.Engines[n.id] = s
	}
	return d
}

// mayStop reports whether every engine that the current order holds, the wave's or without
// one each that was named alone, has finished what it had.
func (o *owner) mayStop() bool {
	some := false
	for _, n := range o.nodes {
		if !n.draining || n.record.wave != o.wave {
			continue
		}
		if n.state != stateDrained {
			return false
		}
		some = true
	}
	return some
}

// settleDrain moves a draining engine on when its residents have left or its time is up.
func (o *owner) settleDrain(n *node, now float64) {
	if !n.draining || n.state != stateDraining && n.state != stateExceeded {
		return
	}
	switch {
	case n.idle() && (n.oldStart != nil || !o.set.contracted()):
		n.state = stateDrained
		o.lifecycleEvent(n, "drain_complete")
		if o.wave != "" && n.record.wave == o.wave && o.mayStop() {
			o.lifecycleEvent(nil, "wave_ready_to_stop")
		}
	case n.state == stateDraining && n.deadline > 0 && now > n.deadline:
		n.state = stateExceeded
		o.lifecycleEvent(n, "drain_deadline_exceeded")
	}
}

// lifecycleEvent tells of a step; more are members that its action has beside the usual ones.
func (o *owner) lifecycleEvent(n *node, action string, more ...eventField) {
	f := o.lifecycleFields(n, action)
	for _, m := range more {
		f[m.key] = m.value
	}
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

// eventField is one member of an event.
type eventField struct {
	key   string
	value any
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

package router

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// lifecycleFields begin an engine_lifecycle event: every one names its wave, and a blocked
// engine its fault. n is nil for the whole fleet.
func (o *owner) lifecycleFields(n *node, action string) map[string]any {
	f := map[string]any{"action": action, "wave_id": o.wave}
	if n == nil {
		return f
	}
	f["wave_id"] = n.record.wave
	if n.fault != "" {
		f["error"] = n.fault
	}
	if n.known {
		f["process_start"] = n.facts.identity.ProcessStart
	}
	return f
}

// probeFields are the engine_probe event of a probe of health.
func probeFields(n *node, kind, outcome string) map[string]any {
	return map[string]any{"iid": n.id, "kind": kind, "outcome": outcome}
}

// floorRestored tells of a move that repaired the decode floor.
func (o *owner) floorRestored(m control.Move, now float64) {
	if m.By == control.ByDecodeFloor {
		o.event("decode_floor_restored", now, map[string]any{"iid": m.Engine, "live_decode": o.liveOf(model.Decode), "min_decode": o.set.control.MinDecode})
	}
}

// eventNoted, if not nil, sees each event before it is written. Tests set it.
var eventNoted func(name string, fields map[string]any)

func noted(name string, fields map[string]any) {
	if eventNoted != nil {
		eventNoted(name, fields)
	}
}

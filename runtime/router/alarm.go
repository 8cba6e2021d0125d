package router

import (
	"context"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Alarms: what an engine's own counters say went wrong although every answer was 200.
const (
	alarmLateNotice = "notification_after_expiry" // somebody read KV that was no longer the request's own
	alarmExpired    = "lease_expired"             // KV was held to the end and never read
	alarmRecompute  = "local_recompute"           // a decode engine prefilled by itself what it should have read
)

// alarmSays tells people what an alarm may mean.
var alarmSays = map[string]string{
	alarmLateNotice: "a decode engine told of KV that it read after the end of its time: its output may be wrong",
	alarmExpired:    "KV was kept to the end of its time and nobody read it",
	alarmRecompute:  "a decode engine prefilled although this router gave it no prefill: KV that it should have read was lost, or somebody else sends it requests, such as another router of the same engines",
}

var alarms = []string{alarmLateNotice, alarmExpired, alarmRecompute}

// scrape reads an engine's counters; nil when it does not tell them.
func (r *Router) scrape(ctx context.Context, n *node) *engine.State {
	s, err := n.control.Metrics(ctx)
	if err != nil {
		return nil
	}
	st, err := r.dialect.State(s)
	if err != nil {
		return nil
	}
	return &st
}

// watchEngine compares a scrape with the one before. The first of a process says nothing.
func (o *owner) watchEngine(n *node, st *engine.State) {
	if st == nil {
		return
	}
	old, local := n.counters, n.local+int(n.probed.Swap(0))
	n.counters, n.local = st, 0
	if old == nil || old.ProcessStart != st.ProcessStart {
		return
	}
	if d := st.LateNotices - old.LateNotices; d > 0 {
		o.alarm(n, alarmLateNotice, d)
	}
	if d := st.Expired - old.Expired; d > 0 {
		o.alarm(n, alarmExpired, d)
	}
	// Only an engine that this router gave no prefill of its own can recompute.
	if d := st.LocalCompute - old.LocalCompute; d > 0 && local == 0 && n.role == model.Decode && len(n.prefilling) == 0 {
		o.alarm(n, alarmRecompute, d)
	}
}

func (o *owner) alarm(n *node, kind string, by float64) {
	o.n.alarms[[2]string{n.id, kind}] += int(by)
	o.set.Logger.Warn("engine alarm", "engine", n.id, "alarm", kind, "count", int(by), "means", alarmSays[kind])
	o.event("engine_alarm", o.now(), map[string]any{"iid": n.id, "alarm": kind, "count": int(by)})
}

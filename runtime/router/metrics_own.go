package router

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// ownCounters are counted where things happen, by any goroutine.
type ownCounters struct{ refusals *prometheus.CounterVec }

func newOwnCounters(registry *prometheus.Registry) ownCounters {
	f := catalog["narwhal_router_handoff_refusals_total"]
	c := ownCounters{prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)}
	registry.MustRegister(c.refusals)
	return c
}

// handoffRefused counts a handoff of an engine that failed its check.
func (m *metrics) handoffRefused(iid string) { m.own.refusals.WithLabelValues(labelValue(iid)).Inc() }

// ownSeries writes what the owner counts beside the contract.
func (o *owner) ownSeries(s *series) {
	s.count("router_stray_handoffs_total", o.n.strayHandoffs)
	for field, v := range o.n.stripped {
		s.count("router_stripped_fields_total", v, field)
	}
	for cause, v := range o.n.retryDenials {
		s.count("router_retry_denials_total", v, cause)
	}
	late := 0
	for _, n := range o.nodes {
		s.put("router_engine_correction", n.prefillKappa, n.id, "prefill")
		s.put("router_engine_correction", n.kappa, n.id, "decode")
		if o.set.PrefixAffinity {
			s.count("router_prefix_chunks", n.prefixes.Len(), n.id)
			s.count("router_prefix_believed_tokens_total", n.believed, n.id)
			s.count("router_prefix_confirmed_tokens_total", n.confirmed, n.id)
		}
		if e := o.drifts.Of(n.id); e.ScoredAt > 0 {
			s.put("router_drift_score", e.Score, n.id)
		}
		for _, kind := range alarms {
			s.count("router_engine_alarms_total", o.n.alarms[[2]string{n.id, kind}], n.id, kind)
		}
		late += o.n.alarms[[2]string{n.id, alarmLateNotice}]
	}
	s.count("router_late_notifications_total", late)
	for e, x := range o.edges {
		if x.barred {
			s.put("router_barred_pair", 1, e.p.id, e.d.id)
		}
	}
	o.tenantSeries(s)
}

// seen is what is known without the owner.
type seen struct {
	lag, lagHigh, busy float64
	sizing             float64
	journal            journal.Health
	clients, crowded   int
	guards, unlogged   int
	goroutines         int
	heap, memory       uint64
}

func (m *metrics) look() seen {
	v := m.queue.look()
	v.sizing = m.sizing.median()
	v.journal = m.r.journalHealth()
	if m.r.listener != nil {
		v.clients, v.crowded = m.r.listener.count()
	}
	if told := m.r.set.HA.GuardEnds; told != nil {
		v.guards = told()
	}
	if told := m.r.set.LogDropped; told != nil {
		v.unlogged = told()
	}
	return v
}

// journalHealth is the zero value without a journal.
func (r *Router) journalHealth() journal.Health {
	if r.own.journal == nil {
		return journal.Health{}
	}
	return r.own.journal.Health()
}

func (m *metrics) ownSeries(s *series, v seen) {
	j := v.journal
	s.put("router_journal_rows_written_total", float64(j.Written))
	s.put("router_journal_rows_dropped_total", float64(j.Dropped))
	s.put("router_journal_bytes_total", float64(j.Bytes))
	s.count("router_journal_queue_rows", j.Queued)
	s.put("router_journal_queue_bytes", float64(j.Held))
	s.count("router_journal_queue_capacity_rows", j.Capacity)
	s.count("router_journal_queue_high_water_rows", j.HighWater)
	s.count("router_journal_waiting_requests", j.Waiting)
	s.put("router_journal_rotations_total", float64(j.Rotations))
	s.put("router_journal_reopened_total", float64(j.Reopened))
	s.put("router_journal_write_errors_total", float64(j.Errors))
	s.flag("router_journal_failing", j.Failing)
	s.count("router_client_connections", v.clients)
	s.count("router_client_connections_limit", m.r.set.HTTP.MaxClients)
	s.count("router_client_connections_closed_total", v.crowded)
	s.count("router_lease_guard_ends_total", v.guards)
	s.count("router_log_lines_dropped_total", v.unlogged)
	s.count("router_goroutines", v.goroutines)
	s.put("router_heap_bytes", float64(v.heap))
	s.put("router_memory_bytes", float64(v.memory))
	held, ended := m.r.answers.told()
	s.put("router_answer_bytes", float64(held))
	s.count("router_answers_ended_total", ended)
	s.put("router_body_bytes", float64(m.r.bodies.bytesHeld()))
	s.count("router_processors", runtime.GOMAXPROCS(0))
}

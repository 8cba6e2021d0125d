package router

import (
	"math"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// metrics is the narwhal.metrics version 2 surface: histograms kept here, everything else
// read from the owner at scrape time, so that it agrees with /narwhal/state.
type metrics struct {
	r        *Router
	registry *prometheus.Registry
	handler  http.Handler
	ttft     prometheus.Observer
	tpot     prometheus.Observer
}

func newMetrics(r *Router) *metrics {
	m := &metrics{r: r, registry: prometheus.NewRegistry()}
	histogram := func(name, help string, scale float64) prometheus.Observer {
		edges := []float64{0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.5, 3, 10}
		for i, e := range edges {
			edges[i] = math.Round(e*scale*1e6) / 1e6
		}
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: edges}, []string{"slo"})
		m.registry.MustRegister(v)
		return v.WithLabelValues(strconv.FormatFloat(scale, 'g', 6, 64))
	}
	m.ttft = histogram("narwhal_ttft_seconds", "Arrival to the end of the prefill leg.", r.set.params.TTFT)
	m.tpot = histogram("narwhal_tpot_seconds", "Seconds per output token after the prefill.", r.set.params.TPOT)
	m.registry.MustRegister(m)
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return m
}

func (m *metrics) observe(row *journal.Row) {
	if row.TTFT != nil {
		m.ttft.Observe(*row.TTFT)
	}
	if row.TPOT != nil {
		m.tpot.Observe(*row.TPOT)
	}
}

// plain pins the exposition's content type, whatever a scraper asks for.
type plain struct{ http.ResponseWriter }

func (p plain) WriteHeader(status int) {
	p.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	p.ResponseWriter.WriteHeader(status)
}

func (p plain) Write(b []byte) (int, error) {
	p.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return p.ResponseWriter.Write(b)
}

func (m *metrics) serve(w http.ResponseWriter, q *http.Request) {
	q = q.Clone(q.Context())
	q.Header.Del("Accept")
	m.handler.ServeHTTP(plain{w}, q)
}

// Describe sends nothing: the collector is unchecked, because its series depend on the fleet.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the owner once.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	var s series
	m.r.own.do(func() { m.r.own.series(&s) })
	for _, x := range s {
		ch <- x
	}
}

type series []prometheus.Metric

// add appends one series; labels are name, value pairs.
func (s *series) add(t prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	*s = append(*s, prometheus.MustNewConstMetric(prometheus.NewDesc("narwhal_"+name, help, names, nil), t, v, values...))
}

func (s *series) count(name, help string, v int, labels ...string) {
	s.add(prometheus.CounterValue, name, help, float64(v), labels...)
}

func (s *series) gauge(name, help string, v float64, labels ...string) {
	s.add(prometheus.GaugeValue, name, help, v, labels...)
}

func (s *series) reasons(name, help, label string, m map[model.Reason]int) {
	for r, v := range m {
		s.count(name, help, v, label, string(r))
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (o *owner) series(s *series) {
	n := &o.n
	s.gauge("contract_info", "Version of this metrics contract.", 1, "contract", "metrics", "version", "2")
	s.count("offered_total", "Completion requests offered.", n.offered)
	s.count("unsized_offered_total", "Requests that ended before their prompt was sized.", n.unsized)
	s.count("served_total", "Requests completed.", n.served)
	s.count("slo_met_total", "Requests completed within both targets.", n.sloMet)
	s.reasons("failed_total", "Requests that failed.", "reason", n.failed)
	s.reasons("rejected_total", "Requests turned away unpriced.", "reason", n.rejected)
	s.reasons("expired_total", "Requests that ran out of time.", "reason", n.expired)
	causes := map[model.Reason]int{"prompt": 0, "queue": 0, "aggregate_unpriced": 0, "decode": 0}
	for r, v := range n.refused {
		causes[model.Reason(r.Cause())] += v
	}
	s.reasons("refused_total", "Requests refused by their price.", "cause", causes)
	s.count("cancelled_total", "Requests whose client left.", n.cancelled)
	s.count("invalid_requests_total", "Requests at fault themselves.", n.invalid)
	s.count("unserved_total", "Placements without a candidate within the promise.", n.unserved)
	s.count("prefill_attempts_total", "Prefill legs sent.", n.prefillAttempts)
	s.count("decode_attempts_total", "Decode legs sent.", n.decodeAttempts)
	s.count("retry_attempts_total", "Second attempts.", n.retryAttempts)
	for k, v := range n.attemptFailures {
		s.count("attempt_failures_total", "Failed attempts.", v, "phase", k[0], "reason", k[1])
	}
	s.count("served_after_retry_total", "Requests completed by their second attempt.", n.servedAfterRetry)
	s.count("retry_credits_spent_total", "Retry credits used.", n.creditsSpent)
	s.count("retry_denied_total", "Retries refused for want of a credit.", n.retryDenied)
	s.gauge("retry_credits", "Free retry credit.", o.credits)
	s.count("decode_tokens_observed_total", "Output tokens, by the engines' count.", n.tokens)
	s.add(prometheus.CounterValue, "upstream_seconds_total", "Seconds of legs.", n.prefillSeconds, "phase", "prefill")
	s.add(prometheus.CounterValue, "upstream_seconds_total", "Seconds of legs.", n.decodeSeconds, "phase", "decode")
	s.gauge("http_retained", "Requests in the router.", float64(n.retained))
	s.gauge("http_retained_limit", "Most requests in the router.", float64(o.set.limit))
	s.gauge("http_retained_high_water", "Most requests seen at once.", float64(n.retainedHigh))
	s.gauge("admission_inflight", "Seats taken.", float64(n.inflight))
	s.gauge("admission_inflight_limit", "Seats.", float64(o.set.limit))
	mode := "predictive"
	if o.set.params.Open {
		mode = "open"
	}
	s.gauge("admission_info", "Admission mode.", 1, "mode", mode)
	s.gauge("admission_margin", "Share by which a price may exceed the promise.", o.set.params.Margin)
	s.gauge("queued", "Requests waiting; this router keeps no queue.", 0)
	s.gauge("queue_capacity", "Places to wait.", 0)
	for k, v := range map[string]float64{"ttft": o.set.params.TTFT, "tpot": o.set.params.TPOT} {
		s.gauge("slo_seconds", "The promise.", v, "metric", k, "slo", strconv.FormatFloat(v, 'g', 6, 64))
	}
	s.gauge("router_ready", "Ready to serve.", flag(o.view.Load().reason() == ""))
	s.gauge("router_lease_epoch", "Epoch of the router lease.", float64(o.leaseEpoch()))
	o.engineSeries(s)
	o.controlSeries(s)
}

func (o *owner) engineSeries(s *series) {
	pools := map[model.Role]int{model.Prefill: 0, model.Decode: 0}
	ejected := 0
	for _, n := range o.nodes {
		pools[n.role]++
		s.gauge("instance_role", "1 on the current role.", 1, "iid", n.id, "role", string(n.role))
		p, d := n.resident()
		s.gauge("resident_requests", "Requests on the engine.", float64(p), "iid", n.id, "phase", "prefill")
		s.gauge("resident_requests", "Requests on the engine.", float64(d), "iid", n.id, "phase", "decode")
		if n.ejected != "" {
			ejected++
			s.gauge("ejected", "Present while ejected.", 1, "iid", n.id)
		}
		for _, c := range classes {
			s.gauge("engine_breaker_streak", "Consecutive failures.", float64(n.streak[c]), "iid", n.id, "class", c)
		}
		s.gauge("engine_draining", "Held out of placement.", flag(n.draining), "iid", n.id)
		s.gauge("engine_ready_to_stop", "Drained.", flag(n.state == stateDrained), "iid", n.id)
		s.gauge("engine_lifecycle_state", "1 on the current state.", 1, "iid", n.id, "state", n.state)
	}
	load := o.loads()
	for role, v := range pools {
		s.gauge("pool_instances", "Engines of a role.", float64(v), "role", string(role))
		s.gauge("pool_load", "Load of a role; 1 is the promise.", load[string(role)], "role", string(role))
	}
	s.gauge("ejected_instances", "Ejected engines.", float64(ejected))
	for k, v := range o.n.ejections {
		s.count("engine_ejections_total", "Ejections.", v, "iid", k[0], "cause", k[1])
	}
	for k, v := range o.n.readmissions {
		s.count("engine_readmissions_total", "Readmissions.", v, "iid", k[0], "evidence", k[1])
	}
	for k, v := range o.n.probes {
		s.count("engine_probes_total", "Probes of suspects.", v, "iid", k[0], "kind", k[1], "outcome", k[2])
	}
	s.gauge("prefill_below_floor", "Too few live prefill engines.", flag(o.n.belowFloor))
	s.count("prefill_below_floor_events_total", "Times below the floor.", o.n.breaches)
	s.gauge("decode_floor", "Least decode engines.", float64(o.set.control.MinDecode))
}

func (o *owner) controlSeries(s *series) {
	for _, k := range [][2]string{{control.ByDecodeFloor, "decode"}, {control.ByFloorRecovery, "prefill"}, {control.ByReactive, "decode"}, {control.ByReactive, "prefill"}} {
		s.count("flips_total", "Role moves.", o.moves[k[0]+":"+k[1]], "to", k[1], "by", k[0])
	}
	s.count("flip_reversals_total", "Moves against the one before.", o.n.reversals)
	s.count("flips_refused_total", "Moves that a guard held.", o.n.flipsRefused)
	s.count("flip_inflight_total", "Requests on engines as they moved.", o.n.flipPrefill, "phase", "prefill")
	s.count("flip_inflight_total", "Requests on engines as they moved.", o.n.flipDecode, "phase", "decode")
	s.gauge("controller_advisory", "Decides without moving.", flag(o.set.control.Advisory))
	for k, v := range o.decisions {
		by, result := cut(k)
		s.count("controller_decisions_total", "Evaluations.", v, "by", by, "result", result)
	}
	d := o.last
	if d == nil {
		return
	}
	s.gauge("controller_proposed_engines", "Chosen split.", float64(d.Prefill), "role", "prefill")
	s.gauge("controller_proposed_engines", "Chosen split.", float64(d.Decode), "role", "decode")
	s.gauge("controller_last_decision", "The last evaluation.", 1, "by", d.By, "reason", d.Reason, "result", d.Result)
	s.gauge("controller_projected_slo_ratio", "Projected share of the promise.", float64(d.TTFTRatio), "phase", "prefill")
	s.gauge("controller_projected_slo_ratio", "Projected share of the promise.", float64(d.TPOTRatio), "phase", "decode")
	s.gauge("controller_phase_work_engines", "Measured demand.", float64(d.PrefillWork), "phase", "prefill")
	s.gauge("controller_phase_work_engines", "Measured demand.", float64(d.DecodeWork), "phase", "decode")
	s.gauge("controller_objective", "Score.", float64(d.Objective), "value", "candidate")
	s.gauge("controller_objective", "Score.", float64(d.Delta), "value", "improvement")
}

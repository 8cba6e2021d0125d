package router

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// metrics is the narwhal.metrics version 2 surface and this router's own families beside
// it. Histograms and what requests count themselves are kept here; everything else is read
// from the owner at scrape time, so that it agrees with /narwhal/state.
type metrics struct {
	r      *Router
	text   http.Handler // the plain exposition
	asked  http.Handler // what the scraper negotiates: OpenMetrics, or protobuf
	ttft   prometheus.Observer
	tpot   prometheus.Observer
	seat   prometheus.Observer
	waits  map[string]prometheus.Observer // by stage
	own    ownCounters
	queue  runQueue
	sizing sizings
}

func newMetrics(r *Router) *metrics {
	registry := prometheus.NewRegistry()
	m := &metrics{r: r, waits: map[string]prometheus.Observer{}, own: newOwnCounters(registry)}
	slo := r.set.params
	m.ttft = histogram(registry, "ttft_seconds", slo.TTFT).WithLabelValues(sloLabel(slo.TTFT))
	m.tpot = histogram(registry, "tpot_seconds", slo.TPOT).WithLabelValues(sloLabel(slo.TPOT))
	m.seat = histogram(registry, "seat_seconds", slo.TTFT).WithLabelValues(sloLabel(slo.TTFT))
	wait := r.set.Fleet.Serving.QueueTimeoutS
	if wait <= 0 {
		wait = slo.TTFT
	}
	stages := histogram(registry, "queue_wait_seconds", wait)
	for _, stage := range []string{phaseAdmission, phasePrefill, phaseDecode} {
		m.waits[stage] = stages.WithLabelValues(stage, sloLabel(wait))
	}
	r.own.n.outcomes.keep = 4 * r.set.control.Window
	for _, w := range r.own.n.demand() {
		w.keep = r.set.control.Window
	}
	r.own.n.observed.keep = 4 * r.set.control.Window
	registry.MustRegister(m)
	m.text = promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	m.asked = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return m
}

func sloLabel(scale float64) string { return strconv.FormatFloat(scale, 'g', 6, 64) }

// edges are the contract's, as shares of a scale.
var edges = []float64{0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.5, 3, 10}

// nativeFactor is the growth of native buckets: a quantile is off by 5 % at most.
const nativeFactor = 1.1

// histogram registers a family with the contract's edges, and native buckets beside them
// for scrapers that take those.
func histogram(registry *prometheus.Registry, name string, scale float64) *prometheus.HistogramVec {
	f := catalog["narwhal_"+name]
	at := make([]float64, len(edges))
	for i, e := range edges {
		at[i] = math.Round(e*scale*1e6) / 1e6
	}
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: at,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: 160}, f.Labels)
	registry.MustRegister(v)
	return v
}

// observe takes a terminal row in; trace is its trace id, "" without one.
func (m *metrics) observe(row *journal.Row, trace string) {
	observe(m.ttft, row.TTFT, trace)
	observe(m.tpot, row.TPOT, trace)
	if !row.InputSized {
		return // it never had a seat of the contract, which are given after the sizing
	}
	held := row.Duration
	if w := row.QueueWaits.Admission; w != nil {
		held -= *w
	}
	observe(m.seat, &held, trace)
	observe(m.waits[phaseAdmission], row.QueueWaits.Admission, trace)
	observe(m.waits[phasePrefill], row.QueueWaits.Prefill, trace)
	observe(m.waits[phaseDecode], row.QueueWaits.Decode, trace)
}

func observe(o prometheus.Observer, v *float64, trace string) {
	if v == nil {
		return
	}
	if e, ok := o.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(*v, prometheus.Labels{"trace_id": trace})
		return
	}
	o.Observe(*v)
}

// plain pins the exposition's content type for who asks for no other.
type plain struct{ http.ResponseWriter }

func (p plain) WriteHeader(status int) {
	p.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	p.ResponseWriter.WriteHeader(status)
}

func (p plain) Write(b []byte) (int, error) {
	p.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return p.ResponseWriter.Write(b)
}

// serve answers GET and HEAD. Exemplars and native buckets go only to scrapers that name
// OpenMetrics or protobuf.
func (m *metrics) serve(w http.ResponseWriter, q *http.Request) {
	accept := q.Header.Get("Accept")
	if strings.Contains(accept, "application/openmetrics-text") || strings.Contains(accept, "application/vnd.google.protobuf") {
		m.asked.ServeHTTP(w, q)
		return
	}
	q = q.Clone(q.Context())
	q.Header.Del("Accept")
	m.text.ServeHTTP(plain{w}, q)
}

// Describe sends nothing: the collector is unchecked, because its series depend on the fleet.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the owner once. A scrape of a router that does not answer itself, or has
// stopped, gets what is known without it.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := &series{}
	seen := m.look()
	if !m.r.own.ask(beatLimit, func() { m.r.own.series(s, seen) }) {
		s = &series{} // the owner may still write into the other one
	}
	m.ownSeries(s, seen)
	for _, x := range *s {
		ch <- x
	}
}

package router

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// described is a family's description, made once.
type described struct {
	Metric
	desc *prometheus.Desc
	kind prometheus.ValueType
}

var catalog = func() map[string]described {
	out := map[string]described{}
	for _, m := range Metrics() {
		d := described{Metric: m, desc: prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), kind: prometheus.GaugeValue}
		if m.Type == "counter" {
			d.kind = prometheus.CounterValue
		}
		out[m.Name] = d
	}
	return out
}()

// series are samples in the making. A name that is not in the table is a mistake of the
// program, and so is a wrong number of labels.
type series []prometheus.Metric

// put appends one sample; label values come in the table's order.
func (s *series) put(name string, v float64, labels ...string) {
	d, ok := catalog["narwhal_"+name]
	if !ok || len(labels) != len(d.Labels) {
		panic(fmt.Sprintf("metric narwhal_%s with %d labels is not in the table", name, len(labels)))
	}
	for i, l := range labels {
		labels[i] = labelValue(l)
	}
	*s = append(*s, prometheus.MustNewConstMetric(d.desc, d.kind, v, labels...))
}

func (s *series) count(name string, v int, labels ...string) { s.put(name, float64(v), labels...) }

func (s *series) flag(name string, b bool, labels ...string) { s.put(name, flag(b), labels...) }

func (s *series) reasons(name string, m map[model.Reason]int) {
	for r, v := range m {
		s.count(name, v, string(r))
	}
}

// labelLimit bounds a label's value, in bytes.
const labelLimit = 120

// labelValue keeps a value within its bound and valid UTF-8; the exposition escapes it.
func labelValue(s string) string {
	if len(s) > labelLimit {
		s = s[:labelLimit]
	}
	return strings.ToValidUTF8(s, "�")
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

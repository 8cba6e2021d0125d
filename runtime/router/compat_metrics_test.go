package router

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// scraped is a text exposition: types by family, and series as name{label="value",…}
// with their labels in order, le left out.
type scraped struct {
	types  map[string]string
	labels map[string][]string // label names by family, as its first series has them
	series map[string]string
}

var (
	sampleLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

func scrape(t *testing.T, in io.Reader) scraped {
	t.Helper()
	s := scraped{map[string]string{}, map[string][]string{}, map[string]string{}}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) == 4 && f[1] == "TYPE" {
			s.types[f[2]] = f[3]
		}
		m := sampleLine.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		family := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(family, suffix); s.types[base] == "histogram" {
				family = base
			}
		}
		names, pairs := []string{}, []string{}
		for _, p := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if p[1] == "le" {
				continue
			}
			names, pairs = append(names, p[1]), append(pairs, p[1]+"="+p[2])
		}
		slices.Sort(names)
		slices.Sort(pairs)
		s.labels[family] = names
		s.series[m[1]+"{"+strings.Join(pairs, ",")+"}"] = m[3]
	}
	return s
}

func recordedMetrics(t *testing.T, name string) scraped {
	t.Helper()
	f, err := os.Open("testdata/reference-" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return scrape(t, f)
}

func (b *testbed) scrape(accept string) (scraped, *http.Response) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(limit(b.t), http.MethodGet, b.url+"/metrics", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	return scrape(b.t, resp.Body), resp
}

// TestTheTableHasTheReferencesFamilies compares names, types and labels.
func TestTheTableHasTheReferencesFamilies(t *testing.T) {
	table := map[string]Metric{}
	for _, m := range Metrics() {
		if _, twice := table[m.Name]; twice || m.Type == "" || m.Help == "" {
			t.Errorf("%s stands twice in the table, or is not whole", m.Name)
		}
		table[m.Name] = m
		if m.Ours && !strings.HasPrefix(m.Name, "narwhal_router_") {
			t.Errorf("%s is ours and has no prefix of ours", m.Name)
		}
	}
	for _, name := range []string{"metrics.txt", "metrics-ejected.txt", "metrics-queue.txt"} {
		ref := recordedMetrics(t, name)
		for family, kind := range ref.types {
			m, ok := table[family]
			if !ok || m.Type != kind {
				t.Errorf("%s: %s is a %s, the table has %q", name, family, kind, m.Type)
				continue
			}
			want, ok := ref.labels[family]
			if !ok {
				continue // recorded without a series
			}
			got := slices.Sorted(slices.Values(m.Labels))
			if family == "narwhal_controller_last_decision" {
				got = slices.DeleteFunc(got, func(l string) bool { return l == "rule" })
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s has labels %v, want %v", name, family, got, want)
			}
		}
	}
}

// TestAFreshRouterHasTheReferencesSeries compares every series that the reference shows
// whatever happened: a router of the same four engines has them from its first scrape.
func TestAFreshRouterHasTheReferencesSeries(t *testing.T) {
	b := startBed(t, 2, 2, quick(), func(c *Config) { c.Fleet.SLO.TPOTS = 0.05 })
	ours, resp := b.scrape("")
	if ct := resp.Header.Get("Content-Type"); ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	ref := recordedMetrics(t, "metrics.txt")
	// These begin with what happened in the recording.
	later := []string{"narwhal_attempt_failures_total", "narwhal_controller_", "narwhal_demand_evidence_", "narwhal_demand_history_", "narwhal_engine_lifecycle_state"}
	for _, series := range slices.Sorted(slicesKeys(ref.series)) {
		if _, ok := ours.series[series]; ok || slices.ContainsFunc(later, func(p string) bool { return strings.HasPrefix(series, p) }) {
			continue
		}
		t.Errorf("no series %s", series)
	}
	for family, kind := range ours.types {
		if want, ok := ref.types[family]; ok && want != kind {
			t.Errorf("%s is a %s, want %s", family, kind, want)
		}
		if _, ok := ref.types[family]; !ok && !strings.HasPrefix(family, "narwhal_router_") {
			t.Errorf("%s is neither the contract's nor ours", family)
		}
	}
	for series, want := range map[string]string{
		"narwhal_queue_capacity{}": "0", "narwhal_monitoring_stage_failures_total{stage=rollover}": "0", "narwhal_health_prefill_paused{iid=p0}": "0",
		"narwhal_queue_wait_seconds_count{slo=2,stage=decode}": "0", "narwhal_router_journal_failing{}": "0", "narwhal_router_late_notifications_total{}": "0",
		"narwhal_demand_history_cells{window=arrivals}": "0", "narwhal_decode_below_floor{}": "0",
	} {
		if got := ours.series[series]; got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
}

func slicesKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestHistogramsHaveTheContractsEdges compares the classic buckets as numbers.
func TestHistogramsHaveTheContractsEdges(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.Fleet.SLO.TPOTS = 0.05 })
	if a := b.complete(body(false, 4)); a.status != 200 {
		t.Fatal(a.body)
	}
	resp, err := http.Get(b.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := os.ReadFile("testdata/reference-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	bucket := regexp.MustCompile(`(?m)^(narwhal_(?:ttft|tpot|seat)_seconds)_bucket\{slo="([^"]*)",le="([^"]*)"\}`)
	edges := func(text string) map[string][]string {
		out := map[string][]string{}
		for _, m := range bucket.FindAllStringSubmatch(text, -1) {
			out[m[1]+" "+m[2]] = append(out[m[1]+" "+m[2]], strings.TrimSuffix(m[3], ".0"))
		}
		return out
	}
	if d := cmp.Diff(edges(string(ref)), edges(string(raw))); d != "" {
		t.Error(d)
	}
}

func TestHistogramsAreNativeToo(t *testing.T) {
	r := offline(t, 1, 1)
	ttft := 0.25
	r.metrics.observe(&journal.Row{TTFT: &ttft}, "")
	var m dto.Metric
	if err := r.metrics.ttft.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	h := m.GetHistogram()
	if h.GetSampleCount() != 1 || len(h.GetBucket()) != len(edges) || len(h.GetPositiveSpan()) == 0 {
		t.Errorf("%v", h)
	}
}

func TestMetricsAnswerHeadAndNegotiate(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	resp, err := http.Head(b.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
	for accept, want := range map[string]string{"*/*": "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0": "application/openmetrics-text",
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited": "application/vnd.google.protobuf"} {
		if _, resp := b.scrape(accept); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), want) {
			t.Errorf("%s: %d %s", accept, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
}

// TestThePageListsTheDifferences keeps docs/metrics.md to the families and differences.
func TestThePageListsTheDifferences(t *testing.T) {
	b, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Metrics() {
		if !strings.Contains(string(b), "| `"+m.Name+"` |") {
			t.Errorf("no row for %s", m.Name)
		}
	}
	for _, d := range MetricDifferences {
		if !strings.Contains(string(b), "- "+d+"\n") {
			t.Errorf("the page does not say: %s", d)
		}
	}
}

// A sentence in a label is bounded and escaped, and the few words of the rule beside it are what
// an alert can name.
func TestRow28LabelsAreBoundedAndEscaped(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "a\xffb": "a�b", strings.Repeat("x", 500): strings.Repeat("x", labelLimit)} {
		if got := labelValue(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	r := offline(t, 1, 1)
	for rule, want := range map[string]string{"": "none", control.RuleBreach: control.RuleBreach} {
		r.own.do(func() {
			r.own.last = &control.Decision{By: control.ByReactive, Result: control.Held, Rule: rule, Reason: "a \"quoted\"\nreason" + strings.Repeat("x", 500)}
		})
		w := httptest.NewRecorder()
		r.metrics.serve(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		line := `narwhal_controller_last_decision{by="reactive",reason="a \"quoted\"\nreason` + strings.Repeat("x", labelLimit-len("a \"quoted\"\nreason")) + `",result="held",rule="` + want + `"} 1`
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

package router

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rtm "runtime/metrics"
)

func TestOwnCountersShow(t *testing.T) {
	r := offline(t, 1, 1)
	r.metrics.handoffRefused("e0")
	r.own.do(func() {
		r.own.n.stripped["kv_transfer_params"] = 2
		r.own.n.strayHandoffs = 3
		r.own.n.alarms[[2]string{"e0", alarmLateNotice}] = 4
		r.own.n.alarms[[2]string{"e1", "lease_expired"}] = 5
		r.own.n.holdStarts[[2]string{"e0", holdTimed}] = 6
		r.own.n.retryDenials[classStream] = 8
		r.own.n.holdEnds[[3]string{"e0", holdInference, "health"}] = 7
	})
	w := httptest.NewRecorder()
	r.metrics.serve(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`narwhal_router_handoff_refusals_total{iid="e0"} 1`, `narwhal_router_stripped_fields_total{field="kv_transfer_params"} 2`, "narwhal_router_stray_handoffs_total 3",
		`narwhal_router_engine_alarms_total{alarm="lease_expired",iid="e1"} 5`, "narwhal_router_late_notifications_total 4",
		`narwhal_router_retry_denials_total{cause="stream"} 8`,
		`narwhal_engine_hold_starts_total{iid="e0",kind="timed"} 6`, `narwhal_engine_hold_ends_total{cause="health",iid="e0",kind="inference"} 7`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

// A scrape of a stopped router still answers, with what is known without the owner.
func TestAStoppedRouterIsScraped(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	b.stop()
	w := httptest.NewRecorder()
	b.router.metrics.serve(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); w.Code != 200 || strings.Contains(text, "narwhal_offered_total") || !strings.Contains(text, "narwhal_router_goroutines") {
		t.Errorf("%d\n%s", w.Code, text)
	}
}

func TestWindowForgets(t *testing.T) {
	w := window{keep: 10}
	for at := range 30 {
		w.add(float64(at))
		w.add(float64(at) + 0.5)
	}
	v := w.look(29.5)
	if v.cells != 11 || v.seen != 22 || v.prunedCells != 19 || v.pruned != 38 || v.covered != 10 || v.limit != 12 {
		t.Errorf("%+v", v)
	}
	if v := w.look(100); v.cells != 0 || v.covered != 0 || v.seen != 0 {
		t.Errorf("later: %+v", v)
	}
}

func TestRunQueueTakesAPercentile(t *testing.T) {
	var q runQueue
	now := time.Now()
	h := &rtm.Float64Histogram{Buckets: []float64{0, 0.001, 0.01, 0.1}, Counts: []uint64{5, 0, 0}}
	q.roll(h, now)
	h.Counts = []uint64{104, 0, 1} // 99 short ones since, and a long one
	q.roll(h, now.Add(lagSpan/2))
	if q.lag != 0 {
		t.Errorf("within the span: %v", q.lag)
	}
	q.roll(h, now.Add(lagSpan))
	if q.lag != 0 {
		t.Errorf("99th percentile of 99 short waits in 100: %v", q.lag)
	}
	h.Counts = []uint64{104, 0, 11}
	q.roll(h, now.Add(2*lagSpan))
	h.Counts = []uint64{204, 0, 11}
	q.roll(h, now.Add(3*lagSpan))
	if q.lag != 0 || q.highest != 0.01 {
		t.Errorf("lag %v, highest %v", q.lag, q.highest)
	}
}

func TestSizingDelayNeedsEight(t *testing.T) {
	var s sizings
	for i := range 8 {
		if got := s.median(); got != 0 {
			t.Errorf("after %d: %v", i, got)
		}
		s.since(time.Now().Add(-time.Second))
	}
	if got := s.median(); got < 0.9 || got > 1.5 {
		t.Errorf("median %v", got)
	}
}

func TestAFailedStageShows(t *testing.T) {
	r := offline(t, 1, 1)
	scrape := func() string {
		w := httptest.NewRecorder()
		r.metrics.serve(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	r.own.do(func() {
		for range 2 {
			failed := ""
			r.own.stage("telemetry", &failed, func() { panic("a mistake") })
			r.own.degrade(failed)
		}
	})
	for _, want := range []string{`narwhal_monitoring_stage_failures_total{stage="telemetry"} 2`, `narwhal_monitoring_stage_consecutive_failures{stage="telemetry"} 2`,
		"narwhal_monitoring_core_failures_total 2", "narwhal_monitoring_core_consecutive_failures 2", `narwhal_monitoring_stage_failures_total{stage="health"} 0`} {
		if !strings.Contains(scrape(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	r.own.do(func() { r.own.degrade("") })
	if text := scrape(); !strings.Contains(text, `narwhal_monitoring_stage_consecutive_failures{stage="telemetry"} 0`) || !strings.Contains(text, "narwhal_monitoring_core_failures_total 2\n") {
		t.Error("a whole pass does not end the streak")
	}
}

package fleet

import (
	"math"
	"testing"
)

func TestOutOfReach(t *testing.T) {
	var f Fleet
	f.Controller.MonitorIntervalS, f.Controller.Reactive.Utilization = 9e-4, 1e-9
	f.Serving.QueueTimeoutS, f.Serving.QueueCapacity, f.Serving.MaxResponseBytes = 1e308, math.MaxInt64, 1<<40
	f.Engine.CharsPerToken, f.SLO.TTFTS = 1e-16, 2e6
	f.Recovery.Health.WindowS, f.Recovery.FailureQuarantineS = 1e-5, -1
	want := []string{"slo.ttft_s is 2e+06; the most is 1e+06", "controller.monitor_interval_s is 0.0009; the least is 0.001", "serving.queue_capacity is 9.223372036854776e+18; it counts as 1099511627776",
		"serving.queue_timeout_s is 1e+308; it counts as 1099511627776", "engine.chars_per_token is 1e-16; the least is 0.001", "recovery.health.window_s is 1e-05; the least is 0.0001"}
	got := f.OutOfReach()
	for i, b := range got {
		if i >= len(want) || b.String() != want[i] {
			t.Errorf("%d: %s", i, b)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d numbers, want %d", len(got), len(want))
	}
	r := f.Reachable()
	if r.Serving.QueueTimeoutS != MostNumber || r.Serving.QueueCapacity != MostNumber || r.Controller.Reactive.Utilization != 1e-9 || f.Serving.QueueCapacity != math.MaxInt64 {
		t.Errorf("%+v, of %+v", r.Serving, f.Serving)
	}
}

package process

import (
	"math"
	"os"
	"testing"
	"time"
)

func TestStartedAt(t *testing.T) {
	if got, err := startedAt([]byte("cpu 1 2\nbtime 1700000000\nprocesses 9\n"), 250); err != nil || got != 1700000002.5 {
		t.Errorf("%f, %v", got, err)
	}
	for _, bad := range []string{"", "btime", "btime x", "btime -1", "btime 0", "btime 1 2", "xbtime 5"} {
		if got, err := startedAt([]byte(bad), 1); err == nil {
			t.Errorf("%q: %f", bad, got)
		}
	}
	self, err := Self()
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("needs /proc")
	}
	if got, err := StartedAt(self.StartTicks); err != nil || math.Abs(got-float64(time.Now().Unix())) > 3600 {
		t.Errorf("this process began at %f, %v", got, err)
	}
}

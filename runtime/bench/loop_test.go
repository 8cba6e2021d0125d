package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

func TestClosedLoopKeepsAsManyOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Second, prompts: map[string]bool{}}
		res, err := Run(t.Context(), Plan{URL: "http://x", Arrivals: every(20, 0), Concurrency: 5, Transport: e})
		if err != nil || e.max != 5 || res.Elapsed != 4*time.Second || len(res.Rows) != 20 {
			t.Errorf("%d open, %v, %v", e.max, res.Elapsed, err)
		}
		// A request is due when its client is free: the first tokens wait for nobody.
		for _, r := range res.Rows {
			if *r.TTFT != 1 || r.At != float64(r.Index/5) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func TestClosedLoopEndsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Second, prompts: map[string]bool{}}
		res, err := Run(t.Context(), Plan{URL: "http://x", Arrivals: every(1000, 0), Concurrency: 2, Until: 3500 * time.Millisecond, Transport: e})
		if err != nil || len(res.Rows) != 8 || res.Elapsed != 4*time.Second {
			t.Errorf("%d rows, %v, %v", len(res.Rows), res.Elapsed, err)
		}
	})
}

// A server that turns everybody away is not flooded.
func TestClosedLoopPausesWhenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{prompts: map[string]bool{}, answer: func(int) (int, string) { return 429, `{"error":{"message":"later"}}` }}
		res, err := Run(t.Context(), Plan{URL: "http://x", Arrivals: every(1000, 0), Concurrency: 1, Until: time.Second, Transport: e})
		if err != nil || len(res.Rows) > 11 || res.Rows[0].Outcome != OutcomeRefused {
			t.Errorf("%d rows, %v", len(res.Rows), err)
		}
	})
}

// After a stop nothing is sent, open requests have their time, and what was due later was
// not offered.
func TestStopDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			drain time.Duration
			want  string
		}{{5 * time.Second, OutcomeCompleted}, {time.Second, OutcomeBrokenOff}} {
			e := &engine{wait: 4 * time.Second, prompts: map[string]bool{}}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			res, err := Run(ctx, Plan{URL: "http://x", Arrivals: every(10, time.Second), Drain: c.drain, Transport: e})
			cancel()
			due := res.Due()
			if !errors.Is(err, context.DeadlineExceeded) || len(due) != 3 || len(res.Rows) != 10 || due[2].Outcome != c.want || res.Rows[9].Sent {
				t.Errorf("%v: %v, %d due, %+v", c.drain, err, len(due), due)
			}
		}
	})
}

func TestTimeoutIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Minute, prompts: map[string]bool{}}
		res, err := Run(t.Context(), Plan{URL: "http://x", Arrivals: every(1, 0), Timeout: 3 * time.Second, Transport: e})
		if r := res.Rows[0]; err != nil || r.Outcome != OutcomeTimeout || !strings.Contains(r.Error, "3s") || r.Duration != 3 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Equal salts give equal words; families share their beginning and nothing more.
func TestPrompts(t *testing.T) {
	a := []Arrival{{Input: 300, Family: 2, Prefix: 200}, {Input: 320, Family: 2, Prefix: 200}, {Input: 300, Family: 3, Prefix: 200}, {Input: 300}}
	text := func(salt, tag string) (out []string) {
		r, err := prepare(Plan{URL: "http://x", Arrivals: a, Salt: salt, Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range a {
			out = append(out, r.prompt(i, x))
		}
		return out
	}
	one, two, other := text("s", "t1"), text("s", "t2"), text("z", "t1")
	common := func(a, b string) int {
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	for i := range a {
		if one[i] != two[i] || one[i] == other[i] || len(one[i]) != a[i].Input*4 {
			t.Errorf("prompt %d", i)
		}
	}
	if n := common(one[0], one[1]); n < 800 || n > 830 {
		t.Errorf("a family shares %d characters", n)
	}
	if common(one[0], one[2]) > 12 || common(one[0], one[3]) > 3 {
		t.Error("strangers share a beginning")
	}
}

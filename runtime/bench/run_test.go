package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// engine answers in virtual time: first token after wait, the others a gap apart.
type engine struct {
	wait, gap time.Duration
	mu        sync.Mutex
	prompts   map[string]bool
	open, max int
	answer    func(n int) (int, string) // status and body instead of a stream
	calls     int
}

type slowBody struct {
	ctx   context.Context
	e     *engine
	left  []string
	first bool
	buf   []byte
}

func (s *slowBody) Read(p []byte) (int, error) {
	if len(s.buf) == 0 {
		if len(s.left) == 0 {
			return 0, io.EOF
		}
		d := s.e.gap
		if s.first {
			d, s.first = s.e.wait, false
		}
		select {
		case <-time.After(d):
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
		s.buf, s.left = []byte(s.left[0]), s.left[1:]
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

func (s *slowBody) Close() error {
	s.e.mu.Lock()
	s.e.open--
	s.e.mu.Unlock()
	return nil
}

func (e *engine) RoundTrip(r *http.Request) (*http.Response, error) {
	var b struct {
		Prompt string `json:"prompt"`
		Max    int    `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	if e.prompts[b.Prompt] {
		return nil, errors.New("prompt was seen before")
	}
	e.prompts[b.Prompt] = true
	e.open++
	e.max = max(e.max, e.open)
	h := http.Header{"X-Request-Id": {"rid-" + r.Header.Get("X-Request-Id")}}
	if e.answer != nil {
		if status, text := e.answer(e.calls); status != 0 {
			return &http.Response{StatusCode: status, Header: h, Body: &slowBody{ctx: r.Context(), e: e, left: []string{text}}}, nil
		}
	}
	var events []string
	for i := range b.Max {
		finish := "null"
		if i == b.Max-1 {
			finish = `"length"`
		}
		events = append(events, fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":%s}]}\n\n", finish))
	}
	events[len(events)-1] += fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(b.Prompt)/4, b.Max)
	return &http.Response{StatusCode: 200, Header: h, Body: &slowBody{ctx: r.Context(), e: e, left: events, first: true}}, nil
}

func every(n int, gap time.Duration) (out []Arrival) {
	for i := range n {
		out = append(out, Arrival{At: time.Duration(i) * gap, Input: 100, Output: 5, Class: fmt.Sprintf("c%d", i%2)})
	}
	return out
}

func TestOpenLoopKeepsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: 2 * time.Second, gap: 100 * time.Millisecond, prompts: map[string]bool{}}
		res, err := Run(t.Context(), Plan{URL: "http://x", Arrivals: every(50, 100*time.Millisecond), Transport: e})
		if err != nil {
			t.Fatal(err)
		}
		// Closed-loop load would need 50 × 2.4 s.
		if res.Elapsed != 4900*time.Millisecond+2400*time.Millisecond || e.max < 20 {
			t.Errorf("took %v with %d open at most", res.Elapsed, e.max)
		}
		for i, r := range res.Rows {
			if !r.Completed || r.OutputTokens != 5 || math.Abs(*r.TTFT-2) > 1e-6 || math.Abs(*r.TPOT-0.1) > 1e-6 || r.Lag > 1e-6 || r.PromptTokens != 100 {
				t.Fatalf("row %d: %+v", i, r)
			}
		}
		s := Evaluate(res.Rows, SLO{2, 0.1})
		if s.Offered != 50 || s.Completed != 50 || s.Qualified != 50 || s.Attainment != 1 || len(s.ByClass) != 2 || s.ByClass[0].Offered != 25 || *s.TTFT.P99 != 2000 {
			t.Errorf("%+v", s)
		}
		if s := Evaluate(res.Rows, SLO{1.9, 0.1}); s.Qualified != 0 || s.Completed != 50 {
			t.Errorf("stricter: %+v", s)
		}
	})
}

// A load generator that is held up must not make the system look faster.
func TestLagCountsAgainstTheSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Second, prompts: map[string]bool{}}
		r, err := prepare(Plan{URL: "http://x", Arrivals: every(1, 0), Transport: e})
		if err != nil {
			t.Fatal(err)
		}
		r.start = time.Now()
		time.Sleep(3 * time.Second)
		row := Row{Output: 2, Input: 10}
		r.offer(t.Context(), &row, r.start)
		if row.Lag != 3 || *row.TTFT != 4 {
			t.Errorf("lag %v, ttft %v", row.Lag, *row.TTFT)
		}
	})
}

func TestEveryOfferIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{wait: time.Second, prompts: map[string]bool{}}
		e.answer = func(n int) (int, string) {
			switch n {
			case 1:
				return 429, `{"error":{"message":"later","type":"server_overloaded_error"}}`
			case 2:
				return 500, `oops`
			case 3:
				return 200, "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\ndata: {\"error\":{\"message\":\"bad\",\"type\":\"decode\",\"code\":\"failed\"}}\n\n"
			case 4:
				return 200, "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\n"
			}
			return 0, ""
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		res, err := Run(ctx, Plan{URL: "http://x", Arrivals: every(10, time.Second), MaxInFlight: 4, Transport: e})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		s := Evaluate(res.Rows, SLO{10, 10})
		if s.Offered != 10 || s.Refused != 1 || s.Completed+s.Failed != 9 || s.Completed == 0 || s.Attainment != float64(s.Qualified)/10 {
			t.Errorf("%+v", s.Score)
		}
		if r := res.Rows[2]; r.ErrorType != "decode" || r.ErrorCode != "failed" || r.Completed {
			t.Errorf("error event: %+v", r)
		}
		if r := res.Rows[9]; r.Sent || !strings.HasPrefix(r.Error, "not sent") {
			t.Errorf("after the end: %+v", r)
		}
	})
}

func TestCalibrate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := Calibrate(t.Context(), Plan{URL: "http://x", CharsPerToken: 5, Transport: &engine{prompts: map[string]bool{}}})
		if err != nil || math.Abs(got-4) > 0.05 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	for _, p := range []Plan{{URL: "x", Arrivals: every(1, 0)}, {URL: "http://x"}} {
		if _, err := Run(t.Context(), p); err == nil {
			t.Errorf("%+v", p)
		}
	}
}

func TestReconcile(t *testing.T) {
	five, ok := 5, 200
	row := func(i int) Row {
		return Row{RID: fmt.Sprint("r", i), ClientRID: fmt.Sprint("c", i), Sent: true, Status: 200, Completed: true, OutputTokens: 5}
	}
	entry := func(i int) journal.Row {
		id := fmt.Sprint("c", i)
		return journal.Row{RID: fmt.Sprint("r", i), ClientRID: &id, Terminal: journal.Completed, Status: &ok, OutputLen: &five}
	}
	rows := []Row{row(0), row(1), row(2), row(3), {ClientRID: "c4", Sent: true, Error: "connection reset"}, {ClientRID: "c5"}}
	four, other := 4, "someone-else"
	entries := []journal.Row{entry(0), entry(1), entry(2), entry(4), {RID: "x", ClientRID: &other, Terminal: journal.Completed}, {RID: "y", Terminal: journal.Failed}}
	entries[1].OutputLen = &four
	entries[2].Terminal = journal.Failed
	entries[3].Terminal = journal.Cancelled
	got := map[string]string{}
	for _, m := range Reconcile(rows, entries) {
		got[m.RID] += m.What
	}
	want := map[string]string{"r1": "output_tokens", "r2": "outcome", "r3": "missing_in_journal", "y": "missing_at_client"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if ms := Reconcile(rows[:2], append(entries[:1:1], entry(1), entry(1))); len(ms) != 1 || ms[0].What != "twice_in_journal" {
		t.Errorf("%+v", ms)
	}
}

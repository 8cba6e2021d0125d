package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// script answers in the place of a router, one line a request, and fails on what it does not hold:
// "METHOD last part of the path, status, engine document" or "METHOD part, error".
type script struct {
	t     *testing.T
	lines []string
	sent  []string // bodies of orders
	auth  []string
}

func (s *script) RoundTrip(q *http.Request) (*http.Response, error) {
	if len(s.lines) == 0 {
		s.t.Errorf("unexpected %s %s", q.Method, q.URL.Path)
		return nil, errors.New("the script has ended")
	}
	f := strings.SplitN(s.lines[0], " ", 4)
	s.lines = s.lines[1:]
	if q.Method != f[0] || !strings.HasSuffix(q.URL.Path, "/"+f[1]) {
		s.t.Errorf("%s %s, want %s %s", q.Method, q.URL.Path, f[0], f[1])
	}
	if q.Method == http.MethodPost {
		b, _ := io.ReadAll(q.Body)
		s.sent = append(s.sent, string(b))
		s.auth = append(s.auth, q.Header.Get("Authorization"))
	}
	if f[2] == "down" {
		return nil, errors.New("connection refused")
	}
	status := 0
	fmt.Sscan(f[2], &status)
	doc := `{"schema":"narwhal.lifecycle","schema_version":1,"router":{"controls_fleet":true},` + f[3] + `}`
	if status == http.StatusUnauthorized {
		doc = f[3]
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(doc))}, nil
}

const (
	active   = `"engines":{"d1":{"state":"active","accepts_new":true}}`
	draining = `"engines":{"d1":{"state":"draining","draining":true,"old_process_start":1,"restart_required":true,"resident":{"decode":2}}}`
	drained  = `"engines":{"d1":{"state":"drained","draining":true,"ready_to_stop":true,"old_process_start":1,"restart_required":true}}`
	failed   = `"engines":{"d1":{"state":"blocked","draining":true,"old_process_start":1,"restart_required":true,"error":"health: no answer"}},"error":"readmission validation failed"`
	back     = `"engines":{"d1":{"state":"active","accepts_new":true,"old_process_start":1,"new_process_start":2,"restart_required":true}}`
	loose    = `"engines":{"d1":{"state":"drained","draining":true,"ready_to_stop":true,"old_process_start":1}}`
	untold   = `"engines":{"d1":{"state":"blocked","draining":true,"restart_required":true,"error":"health: no answer"}}`
	same     = `"engines":{"d1":{"state":"active","old_process_start":1,"new_process_start":1}}`
	held     = `"wave":{"id":"w","active":true,"ready_to_stop":true},"engines":{"d1":{"state":"drained","draining":true,"ready_to_stop":true,"wave_id":"w"}}`
)

func TestRestart(t *testing.T) {
	broken := errors.New("exit status 1")
	for _, c := range []struct {
		name  string
		lines []string
		all   bool
		by    func(context.Context) error // nil = somebody else
		check func(error) bool
		took  time.Duration
	}{
		{"by a command", []string{"GET lifecycle 200 " + active, "POST drain 200 " + draining, "GET lifecycle 200 " + draining, "GET lifecycle 200 " + drained,
			"GET lifecycle 200 " + drained, "POST readmit 200 " + back}, false, func(context.Context) error { return nil }, func(err error) bool { return err == nil }, 500 * time.Millisecond},
		{"by somebody else, who takes a while", []string{"GET lifecycle 200 " + active, "POST drain 200 " + drained, "GET lifecycle 200 " + drained, "POST readmit 409 " + failed,
			"GET lifecycle 200 " + failed, "POST readmit 409 " + failed, "GET lifecycle 200 " + failed, "POST readmit 200 " + back}, false, nil, func(err error) bool { return err == nil }, 10 * time.Second},
		{"that goes on after a failed validation", []string{"GET lifecycle 200 " + failed, "GET lifecycle 200 " + failed, "POST readmit 200 " + back}, false, nil, func(err error) bool { return err == nil }, 0},
		{"over a router that is away", []string{"GET lifecycle 200 " + active, "POST drain 200 " + draining, "GET lifecycle down", "GET lifecycle 200 " + drained,
			"GET lifecycle down", "GET lifecycle 200 " + drained, "POST readmit 200 " + back}, false, nil, func(err error) bool { return err == nil }, 5500 * time.Millisecond},
		{"whose command fails", []string{"GET lifecycle 200 " + drained}, false, func(context.Context) error { return broken }, func(err error) bool {
			var left *Left
			return errors.As(err, &left) && errors.Is(err, broken)
		}, 0},
		{"of processes that nobody tells apart", []string{"GET lifecycle 200 " + loose}, false, nil, func(err error) bool { return is[*Untold](err) && is[*Left](err) }, 0},
		{"that restarted nothing", []string{"GET lifecycle 200 " + loose, "GET lifecycle 200 " + loose, "POST readmit 200 " + same}, false, func(context.Context) error { return nil }, is[*Same], 0},
		{"that another order undoes", []string{"GET lifecycle 200 " + active, "POST drain 200 " + draining, "GET lifecycle 200 " + active}, false, nil, is[*Stuck], 0},
		{"of the last engine", []string{"GET lifecycle 200 " + active, "POST drain 409 " + active + `,"error":"no other engine is live"`}, false, nil,
			func(err error) bool { return is[*Refusal](err) && err.Error() == "no other engine is live" }, 0},
		{"of the whole fleet", []string{"GET lifecycle 200 " + active, "POST drain 200 " + held, "GET lifecycle 200 " + held, "POST readmit 200 " + back}, true,
			func(context.Context) error { return nil }, func(err error) bool { return err == nil }, 0},
		{"without a token", []string{"GET lifecycle 200 " + active, `POST drain 401 {"error":{"message":"no control token"}}`}, false, nil,
			func(err error) bool { return is[*Denied](err) && strings.Contains(err.Error(), "no control token") }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, lines: c.lines}
				cl, err := New("http://router.example:8000/", fleet.NewSecret("open"), s)
				if err != nil {
					t.Fatal(err)
				}
				target := Target{IID: "d1", All: c.all}
				if c.all {
					target.IID = ""
				}
				began := time.Now()
				_, err = Restart{Target: target, Deadline: time.Minute, Limit: time.Hour, Relaunch: c.by, Step: func(string) {}, Seen: func(Document) {}}.Run(t.Context(), cl)
				if !c.check(err) {
					t.Errorf("%T: %v", err, err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if len(s.lines) > 0 {
					t.Errorf("not asked: %q", s.lines)
				}
				want := map[bool]string{false: `{"engines":["d1"],"deadline_s":60}`, true: `{"wave":true,"deadline_s":60}`}[c.all]
				if len(s.sent) > 0 && strings.Contains(s.sent[0], "deadline") && s.sent[0] != want {
					t.Errorf("sent %s, want %s", s.sent[0], want)
				}
				for _, auth := range s.auth {
					if auth != "Bearer open" {
						t.Errorf("authorization %q", auth)
					}
				}
			})
		})
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// A wait ends at its limit with what was seen last, and with the command's own end as that.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		for range 4 {
			s.lines = append(s.lines, "GET lifecycle 200 "+failed, "POST readmit 409 "+failed)
		}
		cl, _ := New("http://router.example", fleet.Secret{}, s)
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		_, err := cl.ReadmitUntil(ctx, Target{IID: "d1"}, func(Document) {})
		if !is[*Late](err) || !strings.Contains(err.Error(), "d1: health: no answer") || len(s.lines) > 0 {
			t.Errorf("%v, left %d", err, len(s.lines))
		}
		s.lines = []string{"GET lifecycle 200 " + draining}
		over := errors.New("interrupted")
		ended, end := context.WithCancelCause(t.Context())
		_, err = cl.WaitReady(ended, Target{IID: "d1"}, func(Document) { end(over) })
		if !errors.Is(err, over) || is[*Late](err) {
			t.Errorf("%v", err)
		}
		// A return that failed leaves an engine that holds nothing.
		s.lines = []string{"GET lifecycle 200 " + failed}
		if d, err := cl.WaitReady(t.Context(), Target{IID: "d1"}, func(Document) {}); err != nil || !d.Engines["d1"].Ready {
			t.Errorf("%v", err)
		}
		s.lines = []string{"GET lifecycle 200 " + untold}
		if _, err := cl.WaitReady(t.Context(), Target{IID: "d1"}, func(Document) {}); !is[*Stuck](err) || !strings.Contains(err.Error(), "health: no answer") {
			t.Errorf("%v", err)
		}
		// Nothing holds the engine: trying again is no use.
		s.lines = []string{"GET lifecycle 200 " + active, "POST readmit 409 " + active + `,"error":"d1 is active, expected drained"`}
		if _, err := cl.ReadmitUntil(t.Context(), Target{IID: "d1"}, func(Document) {}); !is[*Refusal](err) {
			t.Errorf("%v", err)
		}
		s.lines = []string{"GET lifecycle 200 " + active}
		var unknown *Unknown
		if _, err := cl.Drain(t.Context(), Target{IID: "x"}, time.Minute); !errors.As(err, &unknown) || len(unknown.Known) != 1 {
			t.Errorf("%v", err)
		}
	})
}

func FuzzDocuments(f *testing.F) {
	for _, doc := range []string{active, failed, held} {
		f.Add([]byte(`{"schema":"narwhal.lifecycle","schema_version":1,` + doc + `}`))
		f.Add([]byte(`{"schema":"narwhal.lifecycle","schema_version":1,"engines":{"d1":{"error":"` + strings.Repeat("é", maxReason) + `"}}}`))
		f.Add([]byte(`{"schema":"narwhal.state","schema_version":1,"lifecycle":{` + doc + `},"pools":{"decode":["d1"]},"ejected":["d1"],"holds":{"timed":[{"iid":"d1"}]}}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDocument(b)
		if err == nil {
			for _, id := range d.IDs() {
				if e := d.Engines[id]; len(e.Error) > maxReason+4 || len(e.State) > maxReason+4 || e.Checks == nil {
					t.Errorf("%+v", e)
				}
			}
		}
		if s, err := parseState(b); err == nil && len(s.List) != len(s.Engines) {
			t.Errorf("%d of %d engines", len(s.List), len(s.Engines))
		}
		if r := reasonOf(b); len(r) > maxReason+4 {
			t.Errorf("%d bytes", len(r))
		}
	})
}

// The counts of a router's ejections do not say which stands; its engine does.
func TestReasonOfAnEjection(t *testing.T) {
	for engine, want := range map[string]string{`{"ejected_as":"profile_generation"}`: "ejected: profile_generation", `{}`: "ejected: connection or profile_generation"} {
		s, err := parseState([]byte(`{"schema":"narwhal.state","schema_version":1,"ejected":["d1"],"lifecycle":{"engines":{"d1":` + engine + `}},
			"breaker":{"ejections":[{"iid":"d1","cause":"connection"},{"iid":"d1","cause":"profile_generation"},{"iid":"p0","cause":"liveness"}]}}`))
		if err != nil || s.List[0].Reason != want {
			t.Errorf("%s: %q, %v", engine, s.List[0].Reason, err)
		}
	}
}

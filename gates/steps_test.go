package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// clockHost runs "work ID SECONDS [fail]" and notes when each began and ended.
type clockHost struct {
	Host
	t     testing.TB
	id    string
	notes *notes
}

type notes struct {
	mu      sync.Mutex
	begin   time.Time
	started map[string]time.Duration
	ended   map[string]time.Duration
	order   []string
}

func (n *notes) start(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started[id] = time.Since(n.begin)
	n.order = append(n.order, id)
}

func (n *notes) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended[id] = time.Since(n.begin)
}

func (h *clockHost) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	if len(c.Argv) != 4 || c.Argv[0] != "work" {
		h.t.Errorf("not scripted: %q", c.Argv)
		return remote.Result{}, errors.New("not scripted")
	}
	h.notes.start(c.Argv[1])
	defer h.notes.end(c.Argv[1])
	d, err := time.ParseDuration(c.Argv[2])
	if err != nil {
		h.t.Error(err)
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return remote.Result{Code: -1}, context.Cause(ctx)
	}
	if c.Argv[3] == "fail" {
		return remote.Result{Code: 1}, &remote.ExitError{Host: h.id, Code: 1}
	}
	return remote.Result{Stdout: []byte("{}")}, nil
}

func (h *clockHost) Close() error { return nil }

// work is a step of a length on a host.
func work(id, host, d string, change ...func(*Step)) Step {
	s := Step{ID: id, Host: host, Effect: Observe, Argv: []string{"work", id, d, "ok"}, Limit: fleet.Duration(time.Hour)}
	for _, c := range change {
		c(&s)
	}
	return s
}

func needs(ids ...string) func(*Step)   { return func(s *Step) { s.Needs = ids } }
func exclusive(x ...string) func(*Step) { return func(s *Step) { s.Exclusive = x } }
func fails(s *Step)                     { s.Argv[3] = "fail" }
func last(s *Step)                      { s.Last = true }
func mutates(s *Step)                   { s.Effect = Mutate }
func limit(d time.Duration) func(*Step) { return func(s *Step) { s.Limit = fleet.Duration(d) } }
func (n *notes) at(id string) (a, b int) {
	return int(n.started[id].Seconds()), int(n.ended[id].Seconds())
}

// execute runs steps on hosts with a clock of their own.
func execute(ctx context.Context, t *testing.T, fanOut int, steps ...Step) (*notes, []StepError, error) {
	t.Helper()
	n := &notes{begin: time.Now(), started: map[string]time.Duration{}, ended: map[string]time.Duration{}}
	rec, err := record.Create(filepath.Join(t.TempDir(), "run"), record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	f := testFleet()
	f.Deploy.Limits.FanOut = fanOut
	r := &Runner{Fleet: f, Record: rec, Progress: Quiet{}, facts: map[string]string{}, Connect: func(_ context.Context, id string) (Host, error) {
		return &clockHost{t: t, id: id, notes: n}, nil
	}}
	plan := Plan{Gate: "A", Steps: steps}
	if err := plan.validate(); err != nil {
		t.Fatal(err)
	}
	errs, err := r.steps(ctx, anyGate{}, plan)
	return n, errs, err
}

// anyGate has no evidence of its own, and one local operation.
type anyGate struct{ first }

func (anyGate) Expect(fleet.Fleet) []record.Key            { return nil }
func (anyGate) Facts(record.Key, []byte) map[string]string { return nil }
func (anyGate) Locals() map[string]Local {
	return map[string]Local{"wait": func(ctx context.Context, _ Env, _ json.RawMessage) ([]byte, error) {
		select {
		case <-time.After(time.Minute):
			return []byte("{}"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
}

func ids(errs []StepError) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, e.Step.ID)
	}
	return out
}

func TestStepsRunAtOnceAndInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, errs, err := execute(t.Context(), t, 16,
			work("a", "h1", "10s"), work("b", "h2", "20s"), work("a2", "h1", "5s", needs("a")), work("both", "h3", "1s", needs("a", "b")))
		if err != nil || len(errs) != 0 {
			t.Fatal(errs, err)
		}
		for id, want := range map[string][2]int{"a": {0, 10}, "b": {0, 20}, "a2": {10, 15}, "both": {20, 21}} {
			if s, e := n.at(id); s != want[0] || e != want[1] {
				t.Errorf("%s ran from %d to %d, want %v", id, s, e, want)
			}
		}
	})
}

func TestFailureStopsOnlyDependants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, errs, err := execute(t.Context(), t, 16,
			work("bad", "h1", "1s", fails), work("after", "h1", "1s", needs("bad")), work("afterafter", "h2", "1s", needs("after")),
			work("other", "h2", "5s"), work("other2", "h2", "1s", needs("other")), work("close", "h1", "1s", last, needs("bad")))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "failed", ids(errs), []string{"bad"})
		equal(t, "ran", slices.Sorted(slices.Values(n.order)), []string{"bad", "close", "other", "other2"})
	})
}

// TestLastStepsRun closes what was opened whatever happened, wherever the step stands.
func TestLastStepsRun(t *testing.T) {
	for name, steps := range map[string][]Step{
		"at the end":             {work("open", "h1", "1s", fails), work("use", "h1", "1s", needs("open")), work("close", "h1", "1s", last, needs("open"))},
		"before what it follows": {work("open", "h1", "1s", fails), work("close", "h1", "1s", last, needs("open")), work("use", "h1", "1s", needs("open"))},
		"its need never ran":     {work("bad", "h1", "1s", fails), work("open", "h1", "1s", needs("bad")), work("close", "h1", "1s", last, needs("open"))},
		"two in turn":            {work("open", "h1", "1s", fails), work("close", "h1", "1s", last, needs("open")), work("close2", "h1", "1s", last, needs("close"))},
		"its own need failed":    {work("open", "h1", "1s"), work("close0", "h1", "1s", last, fails, needs("open")), work("close", "h1", "1s", last, needs("close0"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _, err := execute(t.Context(), t, 16, steps...)
				if err != nil || !slices.Contains(n.order, "close") {
					t.Errorf("ran %v, %v", n.order, err)
				}
			})
		})
	}
}

func TestLastStepsWaitForAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := execute(t.Context(), t, 16, work("open", "h1", "1s"), work("close", "h1", "1s", last, needs("open")), work("use", "h2", "30s", needs("open")))
		if s, _ := n.at("close"); s != 31 {
			t.Errorf("closed at %d s, want after 31 s", s)
		}
	})
}

func TestCancelStopsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("stopped by hand")
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(10*time.Second, func() { cancel(why) })
		defer timer.Stop()
		n, errs, err := execute(ctx, t, 16,
			work("open", "h1", "1s", mutates), work("use", "h2", "1m", needs("open")), work("later", "h2", "1s", needs("use")), work("close", "h1", "2s", last, mutates, needs("open")))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "ran", n.order, []string{"open", "use", "close"})
		if len(errs) != 1 || errs[0].Step.ID != "use" || !errors.Is(errs[0].Err, why) {
			t.Errorf("errors %+v", errs)
		}
		if s, e := n.at("close"); s != 10 || e != 12 {
			t.Errorf("closed from %d to %d, want from 10 to 12", s, e)
		}
	})
}

func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := execute(t.Context(), t, 16,
			work("a", "h1", "10s", exclusive("gpu0")), work("b", "h1", "10s", exclusive("gpu0", "gpu1")), work("c", "h2", "10s", exclusive("gpu1")), work("d", "h3", "10s"))
		for id, want := range map[string]int{"a": 0, "c": 0, "d": 0, "b": 10} {
			if s, _ := n.at(id); s != want {
				t.Errorf("%s began at %d, want %d", id, s, want)
			}
		}
	})
}

// TestFanOut limits hosts, not steps, and leaves the workstation out.
func TestFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []Step
		for i := range 5 {
			h := fmt.Sprint("h", i)
			steps = append(steps, work(h+"a", h, "10s"), work(h+"b", h, "10s"))
		}
		local := Step{ID: "local", Effect: Observe, Local: &LocalCall{Op: "wait"}, Limit: fleet.Duration(time.Hour)}
		n, errs, err := execute(t.Context(), t, 2, append([]Step{local}, steps...)...)
		if err != nil || len(errs) > 0 {
			t.Fatal(errs, err)
		}
		for i := range 5 {
			for _, part := range []string{"a", "b"} {
				if s, _ := n.at(fmt.Sprint("h", i, part)); s != i/2*10 {
					t.Errorf("h%d%s began at %d, want %d", i, part, s, i/2*10)
				}
			}
		}
	})
}

func TestStepLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := Step{ID: "local", Effect: Observe, Local: &LocalCall{Op: "wait"}, Limit: fleet.Duration(10 * time.Second)}
		n, errs, _ := execute(t.Context(), t, 16, work("long", "h1", "1h", limit(10*time.Second)), local)
		equal(t, "failed", ids(errs), []string{"long", "local"})
		for _, e := range errs {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", e.Step.ID, e.Err)
			}
		}
		if _, e := n.at("long"); e != 15 {
			t.Errorf("cut off after %d s, want limit and grace, 15 s", e)
		}
	})
}

// halting is a gate whose observation "stop" forbids what needs it.
type halting struct{ anyGate }

func (halting) Halts(k record.Key, data []byte) string {
	if k == "A/stop" && string(data) == "{}" {
		return "it says no"
	}
	return ""
}

// TestHaltedStepsDoNotStart keeps the observation, runs what does not need it, and closes.
func TestHaltedStepsDoNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yields := func(k record.Key) func(*Step) { return func(s *Step) { s.Yields = k } }
		n := &notes{begin: time.Now(), started: map[string]time.Duration{}, ended: map[string]time.Duration{}}
		rec, err := record.Create(filepath.Join(t.TempDir(), "run"), record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		r := &Runner{Fleet: testFleet(), Record: rec, Progress: Quiet{}, facts: map[string]string{}, Connect: func(_ context.Context, id string) (Host, error) {
			return &clockHost{t: t, id: id, notes: n}, nil
		}}
		errs, err := r.steps(t.Context(), halting{}, Plan{Gate: "A", Steps: []Step{
			work("look", "h1", "1s", yields("A/stop")), work("launch", "h1", "1s", mutates, needs("look")), work("after", "h1", "1s", needs("launch")),
			work("other", "h2", "5s", yields("A/go")), work("close", "h2", "1s", last, needs("look")),
		}})
		if err != nil || len(errs) != 0 {
			t.Errorf("errors %v, %v: a halt is no failure", errs, err)
		}
		equal(t, "ran", slices.Sorted(slices.Values(n.order)), []string{"close", "look", "other"})
		if _, ok := rec.State().Evidence("A/stop"); !ok {
			t.Error("the observation is not recorded")
		}
	})
}

func TestRecordFailureEndsThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{begin: time.Now(), started: map[string]time.Duration{}, ended: map[string]time.Duration{}}
		rec, err := record.Create(filepath.Join(t.TempDir(), "run"), record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &Runner{Fleet: testFleet(), Record: rec, Progress: Quiet{}, facts: map[string]string{}, Connect: func(_ context.Context, id string) (Host, error) {
			return &clockHost{t: t, id: id, notes: n}, nil
		}}
		if err := rec.Close(); err != nil { // every write fails from here
			t.Fatal(err)
		}
		_, err = r.steps(t.Context(), anyGate{}, Plan{Gate: "A", Steps: []Step{work("m", "h1", "1s", mutates), work("next", "h1", "1s", needs("m"))}})
		if err == nil || !strings.Contains(err.Error(), "write the record") {
			t.Errorf("got %v", err)
		}
		if len(n.order) != 0 {
			t.Errorf("ran %v without an intent on disk", n.order)
		}
	})
}

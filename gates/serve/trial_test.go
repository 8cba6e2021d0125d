package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// measured runs the trial and what follows from it, and judges the evidence.
func measured(t *testing.T, e *env) (Trial, []string) {
	t.Helper()
	f := e.view.Fleet
	have := map[record.Key]any{routerKey: struct{}{}, readyKey: Ready{Ready: true}, bundleKey: archive(t)}
	for _, op := range []struct {
		name string
		key  record.Key
	}{{"trial", trialKey}, {"journal", journalKey}, {"ring", ringKey}, {"acceptance", acceptanceKey}} {
		e.view = view(t, f, have)
		b, err := Gate{}.Locals()[op.name](limited(t), e, nil)
		if err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
		have[op.key] = b
	}
	var got Trial
	if err := json.Unmarshal(have[trialKey].([]byte), &got); err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, x := range (Gate{}).Judge(view(t, f, have)) {
		if codes = append(codes, x.Code); x.Hint == "" {
			t.Errorf("no hint: %+v", x)
		}
	}
	slices.Sort(codes)
	return got, codes
}

// onRouter is an environment whose tunnel leads to a stand-in before a simulated engine.
func onRouter(t *testing.T, rates ...float64) *env {
	t.Helper()
	f := testFleet()
	f.Deploy.Trial.Rates = rates
	e := newEnv(t, f, map[record.Key]any{readyKey: Ready{Ready: true}})
	e.router = newStandIn(t, engineAsRouter(t).Addr())
	e.addr = serving(t, e.router)
	e.file = func() ([]byte, error) { return e.router.written(), nil }
	e.handoff = func(from, to string) (remote.Result, error) {
		b, err := json.Marshal(RingPair{From: from, To: to, Split: []int{1}, Unsplit: []int{1}, Moved: 16})
		return remote.Result{Stdout: b}, err
	}
	return e
}

// TestTrial offers both rates; client, journal and counters agree.
func TestTrial(t *testing.T) {
	got, codes := measured(t, onRouter(t, 200, 400))
	if len(codes) != 0 || len(got.Points) != 2 || got.Points[0].Rate != 200 || got.Points[1].Rate != 400 || got.Points[0].Tag == got.Points[1].Tag || got.Reconnects != 0 || len(got.NotRun) != 0 {
		t.Fatalf("%v, trial %+v", codes, got)
	}
	if got.Points[1].Begin.Bytes <= got.Points[0].Begin.Bytes || got.Before["file/router/fleet.json"] != "v" || got.After["more"] != "" {
		t.Errorf("begins %+v, %+v, rests on %v", got.Points[0].Begin, got.Points[1].Begin, got.After)
	}
	for _, p := range got.Points {
		if len(p.Rows) != 4 || p.Score.Completed != 4 || p.Score.Offered != 4 || !p.IdleBefore || !p.IdleAfter || len(p.Samples) < 2 {
			t.Errorf("at %g/s: %+v", p.Rate, p)
		}
		for _, r := range p.Rows {
			if r.OutputTokens != 4 || !strings.HasPrefix(r.ClientRID, p.Tag+"-") {
				t.Errorf("row %+v", r)
			}
		}
	}
}

// TestTrialEndsAtARateThatFails offers no rate after one that did not pass.
func TestTrialEndsAtARateThatFails(t *testing.T) {
	e := onRouter(t, 200, 300, 400)
	e.router.cut = func(n int) {
		if n > 4 && n < 9 { // the second rate
			panic(http.ErrAbortHandler)
		}
	}
	got, codes := measured(t, e)
	if !slices.Equal(codes, []string{"attainment", "rate-not-run"}) || len(got.Points) != 2 || !slices.Equal(got.NotRun, []float64{400}) {
		t.Errorf("%v; %d rates offered, not run %v", codes, len(got.Points), got.NotRun)
	}
	if _, highest := got.carried(e.view.Fleet); highest != 200 {
		t.Errorf("the highest passing rate is %g", highest)
	}
}

// TestTrialMarksALostTunnel loses the tunnel under a request: it goes on through the next one.
func TestTrialMarksALostTunnel(t *testing.T) {
	e := onRouter(t, 200)
	lost := e.lost
	var once sync.Once
	e.router.cut = func(n int) {
		if n == 2 {
			once.Do(func() { close(lost) })
			panic(http.ErrAbortHandler)
		}
	}
	got, codes := measured(t, e)
	if got.Reconnects != 1 || got.Points[0].Reconnects != 1 || !slices.Equal(codes, []string{"trial-tunnel"}) {
		t.Errorf("%v, %d reconnects", codes, got.Reconnects)
	}
	if s := got.Points[0].Score; s.Offered != 4 || s.Completed != 3 {
		t.Errorf("the request that was lost counts otherwise: %+v", s.Score)
	}
}

// TestTrialOfARouterThatIsBusy offers nothing to a router that holds requests.
func TestTrialOfARouterThatIsBusy(t *testing.T) {
	e := onRouter(t, 200, 300)
	e.router.stuck = 2
	o := newOffering(e, fixed(e.addr))
	defer o.close()
	o.within = 300 * time.Millisecond
	got, err := o.all(limited(t))
	if err != nil || len(got.Points) != 1 || got.Points[0].IdleBefore || len(got.Points[0].Rows) != 0 || !slices.Equal(got.NotRun, []float64{300}) || e.router.number != 0 {
		t.Fatalf("%v, %+v", err, got)
	}
	if seen := held(got.Points[0].Samples); seen != "http_retained 2" {
		t.Errorf("it holds %s", seen)
	}
}

// TestTrialKeepsWhatWasMeasured, although a host does not say what it rests on afterwards.
func TestTrialKeepsWhatWasMeasured(t *testing.T) {
	e := onRouter(t, 200)
	e.router.cut = func(int) { e.silent.Store(true) }
	got, codes := measured(t, e)
	want := append(slices.Repeat([]string{"trial-input-changed"}, 2), slices.Repeat([]string{"trial-process-changed"}, 3)...)
	if !slices.Equal(codes, want) || got.Points[0].Score.Completed != 4 {
		t.Errorf("%v, %+v", codes, got.Points)
	}
}

// fixed is a way that never breaks.
func fixed(addr string) *way {
	w := &way{told: func(string) {}, opened: make(chan struct{})}
	w.set(addr)
	return w
}

func TestTrialEndsWithItsContext(t *testing.T) {
	e := onRouter(t, 0.1) // would take 40 s
	ctx, cancel := context.WithCancel(t.Context())
	e.router.cut = func(int) { cancel() }
	if _, err := (Gate{}).Locals()["trial"](ctx, e, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPasses(t *testing.T) {
	f := testFleet()
	client, _ := rows("x", 4)
	whole := Point{Rows: client, IdleBefore: true, IdleAfter: true}
	for name, c := range map[string]struct {
		change func(*Point)
		want   bool
	}{
		"whole":       {func(*Point) {}, true},
		"no rows":     {func(p *Point) { p.Rows = nil }, false},
		"two missed":  {func(p *Point) { p.Rows = append(slices.Clone(p.Rows[:2]), bench.Row{}, bench.Row{}) }, false},
		"busy before": {func(p *Point) { p.IdleBefore = false }, false},
		"busy after":  {func(p *Point) { p.IdleAfter = false }, false},
	} {
		p := whole
		c.change(&p)
		if ok, why := p.passes(f); ok != c.want || (why == "") != ok {
			t.Errorf("%s: %v %q", name, ok, why)
		}
	}
}

// TestTrialStep shows every command that the trial and the ring run.
func TestTrialStep(t *testing.T) {
	f := testFleet()
	f.Deploy.Hosts["h2"] = fleet.Host{Root: "/opt/n"}
	f.Deploy.Engines["d0"] = fleet.Place{Host: "h2"}
	runs, ring := trialStep(f).Local.Runs, ringStep(f).Local.Runs
	if len(runs["h1"]) != 2 || len(runs["h2"]) != 1 || len(ring["h1"]) != 1 || len(ring["h2"]) != 1 {
		t.Errorf("%v, %v", runs, ring)
	}
}

package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// inHand restarts a simulated engine of this process on the same addresses.
type inHand struct {
	t      *testing.T
	s      *simulated.Server
	cfg    simulated.Config
	change func(*simulated.Config) // of the second engine
	stays  bool                    // it is not stopped
	fails  bool                    // it is not launched again
	starts int
	pid    int
}

func (h *inHand) running() (process.Record, bool) {
	return process.Record{Spec: process.Spec{Launch: "aa"}, Identity: process.Identity{PID: h.pid, BootID: "b", StartTicks: 1}}, h.s != nil
}

func (h *inHand) stop(context.Context) error {
	if !h.stays {
		h.s.Stop()
		h.s = nil
	}
	return nil
}

func (h *inHand) start(ctx context.Context) (process.Record, error) {
	h.starts++
	if h.fails {
		return process.Record{}, errors.New("it ended at once")
	}
	if !h.stays {
		cfg := h.cfg
		if h.change != nil {
			h.change(&cfg)
		}
		h.s, h.pid = boot(h.t, func(c *simulated.Config) { *c = cfg }), h.pid+1
	}
	r, _ := h.running()
	return r, nil
}

// hand boots an engine on addresses that its successor can take.
func hand(t *testing.T) (*inHand, string) {
	t.Helper()
	h := &inHand{t: t, pid: 7}
	h.s = boot(t, func(c *simulated.Config) { h.cfg = *c })
	u, err := url.Parse(h.s.URL())
	if err != nil {
		t.Fatal(err)
	}
	h.cfg.Listen, h.cfg.SideChannel = u.Host, fmt.Sprintf("127.0.0.1:%d", h.s.SidePort())
	return h, h.s.URL()
}

// partner takes handoffs, and gives a peer up soon.
func partner(t *testing.T, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	return boot(t, func(c *simulated.Config) {
		c.HandshakeLimit = fleet.Duration(300 * time.Millisecond)
		if change != nil {
			change(c)
		}
	})
}

// sidecarOf signs for as long as the engine's first process runs, or for ever.
func sidecarOf(t *testing.T, h *inHand, forEver bool) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/statement" || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if h.pid != 7 && !forEver {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":"engine_unavailable"}}`))
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1/attestation"
}

func restartRequest(t *testing.T, h *inHand, at string, peer *simulated.Server) RestartRequest {
	return RestartRequest{Name: "engine-p0", IID: "p0", URL: at, Dialect: "vllm", Model: "tiny", Tokens: 200, Peer: "d0", PeerURL: peer.URL(), Attest: sidecarOf(t, h, false),
		Within: fleet.Duration(5 * time.Second)}
}

func restartCodes(r Restarted) (codes []string) {
	x := &finder{fleet: testFleet(), engine: "p0", evidence: RestartKey("p0")}
	judgeRestart(x, r)
	for _, f := range x.found {
		codes = append(codes, f.Code)
	}
	return codes
}

func TestRestart(t *testing.T) {
	h, at := hand(t)
	r, err := restart(limited(t), restartRequest(t, h, at, partner(t, nil)), h)
	if err != nil || h.starts != 1 {
		t.Fatalf("%+v, %v after %d launches", r, err, h.starts)
	}
	if got := restartCodes(r); len(got) > 0 || r.Signed[1].Code != "engine_unavailable" || !strings.Contains(r.Old.Error, "500") || r.From.EngineID == r.Before.EngineID || r.To == nil {
		t.Errorf("found %v in %+v", got, r)
	}
	alone := restartRequest(t, h, at, partner(t, nil))
	h.pid, alone.Peer, alone.PeerURL = 7, "", ""
	if r, err = restart(limited(t), alone, h); err != nil || len(restartCodes(r)) > 0 || r.From != nil || r.Old != nil {
		t.Errorf("without a peer: %+v, %v", r, err)
	}
}

// TestRestartFinds what a restart can break, each under its code.
func TestRestartFinds(t *testing.T) {
	for name, c := range map[string]struct {
		hand    func(*inHand)
		peer    func(*simulated.Config)
		request func(*RestartRequest)
		want    []string
	}{
		"it does not come back": {hand: func(h *inHand) { h.fails = true }, want: []string{"restart-not-back"}},
		"it serves another model": {hand: func(h *inHand) { h.change = func(c *simulated.Config) { c.Model = "other" } },
			request: func(q *RestartRequest) { q.Within = fleet.Duration(300 * time.Millisecond) }, want: []string{"restart-not-back"}},
		"it was never stopped": {hand: func(h *inHand) { h.stays = true },
			want: []string{"restart-generation", "restart-still-attested", "restart-old-handoff", "restart-old-handoff", "restart-engine-id"}},
		"another version":                          {hand: func(h *inHand) { h.change = func(c *simulated.Config) { c.EngineVersion = "0.0.1" } }, want: []string{"restart-generation", "restart-handoff", "restart-handoff"}},
		"a peer that computes what it cannot read": {peer: func(c *simulated.Config) { c.Recompute = true }, want: []string{"restart-old-handoff", "restart-old-handoff"}},
		"no sidecar":                               {request: func(q *RestartRequest) { q.Attest = "" }, want: []string{"restart-unattested"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, at := hand(t)
			if c.hand != nil {
				c.hand(h)
			}
			q := restartRequest(t, h, at, partner(t, c.peer))
			if c.request != nil {
				c.request(&q)
			}
			r, err := restart(limited(t), q, h)
			if err != nil {
				t.Fatal(err)
			}
			if got := restartCodes(r); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v in %+v", got, c.want, r)
			}
		})
	}
}

// TestRestartJudges what no simulated engine does.
func TestRestartJudges(t *testing.T) {
	good := func() Restarted {
		h := &Handed{Prompt: 200, Moved: 199, Split: []int{1}, Unsplit: []int{1}}
		return Restarted{IID: "p0", Peer: "d0", Back: true, Before: Generation{Identity: process.Identity{PID: 1}, ProcessStart: 1, EngineID: "a"}, After: Generation{Identity: process.Identity{PID: 2}, ProcessStart: 2, EngineID: "b"},
			Signed: [2]Signing{{Status: 200}, {Status: 503}}, Down: &Given{Error: "500"}, Old: &Given{Error: "500"}, Unsplit: [2][]int{{1}, {1}}, From: h, To: h}
	}
	if got := restartCodes(good()); len(got) > 0 {
		t.Fatalf("found %v", got)
	}
	for code, change := range map[string]func(*Restarted){
		"restart-generation":     func(r *Restarted) { r.After.ProcessStart = 1 },
		"restart-still-attested": func(r *Restarted) { r.Signed[1] = Signing{Error: "connection refused"} },
		"restart-old-handoff":    func(r *Restarted) { r.Down = &Given{Tokens: 3, Error: "cut"} },
		"restart-engine-id":      func(r *Restarted) { r.After.EngineID = "a" },
		"restart-output":         func(r *Restarted) { r.Unsplit[1] = []int{2} },
		"restart-handoff":        func(r *Restarted) { r.Failed = map[string]string{checkTo: "status 500"} },
	} {
		r := good()
		change(&r)
		if got := restartCodes(r); !slices.Equal(got, []string{code}) {
			t.Errorf("found %v, want %s", got, code)
		}
	}
}

// TestRestartLeavesAServingEngine alone, and one that another launch runs.
func TestRestartLeavesAServingEngine(t *testing.T) {
	h, at := hand(t)
	q := restartRequest(t, h, at, partner(t, nil))
	q.Launch = "bb"
	if _, err := restart(limited(t), q, h); err == nil || !strings.Contains(err.Error(), "the plan is for") {
		t.Errorf("another launch: %v", err)
	}
	q.Launch = ""
	p, err := newProber(limited(t), at, "tiny", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.Close()
	ids, err := p.prompt(limited(t), 8)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(limited(t))
	begun, done := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(done)
		_, _ = p.streamUntil(ctx, ids, 3000, func() {
			select {
			case begun <- true:
			default:
			}
		})
	}()
	<-begun
	_, err = restart(limited(t), q, h)
	leave()
	<-done
	if !errors.Is(err, errServing) || h.starts != 0 {
		t.Errorf("a serving engine: %v, %d launches", err, h.starts)
	}
}

// TestRestartCutOff launches the engine again although the drill's time is over.
func TestRestartCutOff(t *testing.T) {
	h, at := hand(t)
	ctx, cancel := context.WithCancel(limited(t))
	cut := &cutting{inHand: h, cancel: cancel}
	_, err := restart(ctx, restartRequest(t, h, at, partner(t, nil)), cut)
	if err == nil || h.starts != 1 || h.s == nil {
		t.Errorf("%v after %d launches", err, h.starts)
	}
}

// cutting ends the drill once the engine is stopped.
type cutting struct {
	*inHand
	cancel func()
}

func (c *cutting) stop(ctx context.Context) error {
	defer c.cancel()
	return c.inHand.stop(ctx)
}

// TestRestartSteps: one engine of each role, before all else that touches an engine.
func TestRestartSteps(t *testing.T) {
	f := testFleet()
	f.Engines[0].Role = "prefill"
	f.Engines = append(f.Engines, fleet.Engine{IID: "d1", URL: "http://192.0.2.13:8100"})
	f.Deploy.Launch = map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"x"}, Secrets: map[string]fleet.SecretRef{"HF_TOKEN": "env:T"}}}
	f.Deploy.Defaults.Launch = "l"
	f.Deploy.Engines["d1"] = fleet.Place{Host: "h2"}
	if keys := (Gate{}).Expect(f); slices.Contains(keys, RestartKey("p0")) {
		t.Error("a drill that nobody allowed is expected")
	}
	f.Deploy.Policy.RestartDrill = true
	keys := (Gate{}).Expect(f)
	if !slices.Contains(keys, RestartKey("p0")) || !slices.Contains(keys, RestartKey("d0")) || slices.Contains(keys, RestartKey("d1")) {
		t.Errorf("expects %v", keys)
	}
	s, err := restartStep(f, f.Engines[0])
	if err != nil || s.Effect != gates.Disrupt || s.Secrets["HF_TOKEN"] != "env:T" || s.Undo == nil || !slices.Contains(s.Exclusive, "engine:d0") || !strings.Contains(strings.Join(s.Undo.Argv, " "), "relaunch") {
		t.Errorf("%+v, %v", s, err)
	}
	f.Deploy.Engines["d0"], f.Deploy.Engines["d1"] = fleet.Place{Host: "h2", Workers: []string{"h1"}}, fleet.Place{Host: "h2", Workers: []string{"h1"}}
	got := judgeRestarts(view(t, f, map[record.Key]any{}))
	if len(got) != 1 || got[0].Code != "restart-undrilled" || !got[0].Note || got[0].Hint == "" {
		t.Errorf("found %+v", got)
	}
}

// TestRelaunch wants a launch that the host remembers, and its secrets.
func TestRelaunch(t *testing.T) {
	q := RestartRequest{Root: t.TempDir(), Name: "engine-p0", IID: "p0"}
	if _, err := relaunch(limited(t), q); err == nil || !strings.Contains(err.Error(), "no launch") {
		t.Errorf("got %v", err)
	}
	if err := os.Unsetenv("RESTART_TOKEN"); err != nil {
		t.Fatal(err)
	}
	h := &onHost{q: RestartRequest{IID: "p0", Secrets: []string{"RESTART_TOKEN"}}}
	if _, err := h.start(limited(t)); err == nil || !strings.Contains(err.Error(), "RESTART_TOKEN") {
		t.Errorf("got %v", err)
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// traffic is what the shifting load did.
type traffic struct {
	Offered    int           `json:"offered"`
	Qualified  int           `json:"qualified"`
	Attainment float64       `json:"attainment"`
	Phases     []phaseResult `json:"phases"`
	Moves      []move        `json:"moves"`
}

type phaseResult struct {
	Name    string      `json:"name"`
	Prefill int         `json:"prefill"` // engines of each role at its end
	Decode  int         `json:"decode"`
	Score   bench.Score `json:"score"`
}

// move is one role change as the router reports it.
type move struct {
	AtS   float64 `json:"at_s"` // since the traffic began
	IID   string  `json:"iid"`
	To    string  `json:"to"`
	Phase string  `json:"phase"`
}

// phase is a kind of load, sized by the number of engines.
type phase struct {
	name          string
	seconds       float64
	rate          float64 // requests/s for each engine of the fleet
	input, output int
}

func phases(quick bool) []phase {
	k := 1.0
	if quick {
		k = 0.6
	}
	return []phase{
		{"chat", 14 * k, 3.2, 40, 48},
		{"documents", 24, 2.6, 3200, 4}, // work for more than two prefill engines, and long enough for roles to move
		{"chat", 16 * k, 3.2, 40, 48},
	}
}

// shiftingTraffic offers the phases through a tunnel and watches the roles.
func (a *app) shiftingTraffic(ctx context.Context, s *session, f demoFlags) (traffic, error) {
	var t traffic
	h, err := s.runner.Connect(ctx, s.fleet.Deploy.Router.Host)
	if err != nil {
		return t, err
	}
	defer h.Close()
	tun, err := h.Tunnel(ctx, "127.0.0.1:0", s.fleet.Deploy.Router.Listen)
	if err != nil {
		return t, err
	}
	defer tun.Close()
	base := "http://" + tun.Addr()
	w := &watcher{app: a, base: base, begin: time.Now()}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.watch(watching) })
	slo := bench.SLO{TTFT: s.fleet.SLO.TTFTS, TPOT: s.fleet.SLO.TPOTS}
	var all []bench.Row
	for _, p := range phases(f.quick) {
		w.enter(p.name)
		res, err := bench.Run(ctx, bench.Plan{URL: base, Model: s.fleet.Model, Arrivals: p.arrivals(len(s.fleet.Engines)), Timeout: time.Minute, CharsPerToken: s.fleet.Engine.CharsPerToken})
		if err != nil {
			stop()
			wg.Wait()
			return t, err
		}
		all = append(all, res.Rows...)
		pools := w.pools()
		score := bench.Evaluate(res.Rows, slo).Score
		t.Phases = append(t.Phases, phaseResult{p.name, len(pools.Prefill), len(pools.Decode), score})
		a.say("  %-9s %d of %d within the SLO; ends with %dP %dD", p.name, score.Qualified, score.Offered, len(pools.Prefill), len(pools.Decode))
	}
	stop()
	wg.Wait()
	t.Moves = w.moves
	total := bench.Evaluate(all, slo)
	t.Offered, t.Qualified, t.Attainment = total.Offered, total.Qualified, total.Attainment
	return t, nil
}

// arrivals come evenly at the phase's rate.
func (p phase) arrivals(engines int) []bench.Arrival {
	rate := p.rate * float64(engines)
	n := int(rate * p.seconds)
	out := make([]bench.Arrival, n)
	for i := range out {
		out[i] = bench.Arrival{At: time.Duration(float64(i) / rate * float64(time.Second)), Input: p.input, Output: p.output, Class: p.name}
	}
	return out
}

// watcher follows the router's roles and tells each move.
type watcher struct {
	app   *app
	base  string
	begin time.Time

	mu    sync.Mutex
	phase string
	last  pools
	seen  int
	moves []move
}

type pools struct {
	Prefill []string `json:"prefill"`
	Decode  []string `json:"decode"`
}

type stateView struct {
	Pools pools `json:"pools"`
	Flips []struct {
		IID string `json:"iid"`
		To  string `json:"to"`
	} `json:"flips"`
}

const lookEvery = 300 * time.Millisecond

func (w *watcher) enter(name string) {
	w.mu.Lock()
	w.phase = name
	w.mu.Unlock()
}

func (w *watcher) pools() pools {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *watcher) watch(ctx context.Context) {
	first := true
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if s, err := w.state(ctx); err == nil {
			w.take(s, first)
			first = false
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watcher) take(s stateView, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = s.Pools
	if first {
		w.seen = len(s.Flips)
		w.app.say("  begins with %s", s.Pools)
	}
	for ; w.seen < len(s.Flips); w.seen++ {
		fl := s.Flips[w.seen]
		m := move{AtS: time.Since(w.begin).Seconds(), IID: fl.IID, To: fl.To, Phase: w.phase}
		w.moves = append(w.moves, m)
		w.app.say("  %5.1fs  %s becomes %-7s now %s", m.AtS, m.IID, m.To, s.Pools)
	}
}

func (p pools) String() string {
	return fmt.Sprintf("prefill [%s] decode [%s]", strings.Join(p.Prefill, " "), strings.Join(p.Decode, " "))
}

func (w *watcher) state(ctx context.Context) (stateView, error) {
	var s stateView
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/narwhal/state", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&s)
}

func (t traffic) print(w io.Writer) {
	for _, p := range t.Phases {
		fmt.Fprintf(w, "  %-9s %3d of %3d within the SLO, then %dP %dD\n", p.Name, p.Score.Qualified, p.Score.Offered, p.Prefill, p.Decode)
	}
	fmt.Fprintf(w, "  roles moved %d times; %.1f%% of %d offered requests within the SLO\n", len(t.Moves), 100*t.Attainment, t.Offered)
}

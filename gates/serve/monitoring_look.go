package serve

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

type monitoringArgs struct {
	Within fleet.Duration `json:"within"`
}

// Watched is what Prometheus sees of the fleet.
type Watched struct {
	// Reason says why Prometheus could not be asked, "" when it could.
	Reason   string `json:"reason"`
	WaitedMS int64  `json:"waited_ms"`
	// Routers and Engines are its targets; Listed are the engines that the router names to it.
	Routers []WatchTarget `json:"routers"`
	Engines []WatchTarget `json:"engines"`
	Listed  []WatchTarget `json:"listed"`
	// Ready is narwhal_router_ready by target.
	Ready map[string]float64 `json:"ready"`
	// Rules are the alerts of the group by name, with Prometheus's word on their health.
	Rules map[string]string `json:"rules"`
}

// WatchTarget is one thing that is scraped.
type WatchTarget struct {
	Address string `json:"address"`          // host:port
	IID     string `json:"iid,omitempty"`    // of an engine
	Health  string `json:"health,omitempty"` // up, down or unknown
	Error   string `json:"error,omitempty"`
}

const (
	maxTargets = 10_000
	askEvery   = 500 * time.Millisecond
	askLimit   = 10 * time.Second
)

// watch looks until Prometheus sees the fleet as it is, or the time is up.
func watch(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var a monitoringArgs
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, err
	}
	f := env.View().Fleet
	if f.Deploy.Monitoring == nil {
		return nil, errors.New("look at the monitoring: the fleet has none")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	router, _, err := tunnel(ctx, env)
	if err != nil {
		return nil, err
	}
	at, _, err := env.Tunnel(ctx, f.MonitoringHost(), f.Deploy.Monitoring.Prometheus)
	if err != nil {
		return nil, err
	}
	var w Watched
	begin := time.Now()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		w = lookAtPrometheus(ctx, "http://"+at, router)
		w.WaitedMS = time.Since(begin).Milliseconds()
		if len(w.findings(f)) == 0 || time.Since(begin) > a.Within.D() {
			return json.Marshal(w)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// lookAtPrometheus asks once. What could not be asked is the reason, and the rest is empty.
func lookAtPrometheus(ctx context.Context, prometheus, router string) (w Watched) {
	w.Routers, w.Engines, w.Listed, w.Ready, w.Rules = []WatchTarget{}, []WatchTarget{}, []WatchTarget{}, map[string]float64{}, map[string]string{}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, ask := range []func() error{
		func() error { return w.askTargets(ctx, prometheus) },
		func() error { return w.askReady(ctx, prometheus) },
		func() error { return w.askRules(ctx, prometheus) },
		func() error { return w.askListed(ctx, router) },
	} {
		if err := ask(); err != nil {
			w.Reason = clean(err.Error(), maxSaid)
			return w
		}
	}
	return w
}

package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Trial is the offered traffic as the client saw it, a point a rate, and what it rests on.
type Trial struct {
	Trace  string  `json:"trace"`
	Points []Point `json:"points"`
	// NotRun are the rates that were not offered, since the one before did not pass.
	NotRun []float64 `json:"not_run"`
	// Reconnects is how often the tunnel was lost and opened again.
	Reconnects int `json:"tunnel_reconnects"`
	// Before and After are digests of the router's files and identities of the processes.
	Before map[string]string `json:"before"`
	After  map[string]string `json:"after"`
}

// trial replays a slice of the trace at each rate through the tunnel, each only after the last
// passed and the router drained.
func trial(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	v := env.View()
	f := v.Fleet
	var r Ready
	if err := v.Decode(readyKey, &r); err != nil {
		return nil, err
	}
	if !r.Ready {
		return nil, fmt.Errorf("offer the trial: the router is not ready: %s", r.Reason)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w, lost, err := openWay(ctx, env)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.keep(ctx, lost); err != nil {
			cancel(err)
		}
	})
	defer func() { cancel(nil); wg.Wait() }()
	t, err := newOffering(env, w).all(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errTunnelLost) {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	t.Trace, t.Reconnects = f.Deploy.Trial.Trace, w.lostTimes()
	return json.Marshal(t)
}

// all offers the rates in their order until one does not pass.
func (o *offering) all(ctx context.Context) (t Trial, err error) {
	defer o.close()
	rates := o.fleet.Deploy.Trial.Rates
	t.NotRun = []float64{}
	if t.Before, err = lookAtRests(ctx, o.env); err != nil {
		return t, err
	}
	for i, rate := range rates {
		p, err := o.point(ctx, rate, i+1)
		if err != nil {
			return t, err
		}
		t.Points = append(t.Points, p)
		if ok, why := p.passes(o.fleet); !ok {
			if t.NotRun = append(t.NotRun, rates[i+1:]...); len(t.NotRun) > 0 {
				o.env.Progress(fmt.Sprintf("%g/s did not pass (%s), so %d more rates are not offered", rate, why, len(t.NotRun)))
			}
			break
		}
	}
	if t.After, err = lookAtRests(ctx, o.env); err != nil {
		if ctx.Err() != nil {
			return t, err
		}
		o.env.Progress(clean(err.Error(), 400)) // what was measured is kept; what is missing is a finding
	}
	return t, nil
}

// trialLimit is the trial's length by its rates, twice, the drains, and some minutes.
func trialLimit(t fleet.Trial) fleet.Duration {
	s := 0.0
	for _, r := range t.Rates {
		if r > 0 {
			s += float64(t.Requests) / r
		}
	}
	return fleet.Duration(2*s*float64(time.Second)) + fleet.Duration(2*len(t.Rates))*fleet.Duration(drainLimit) + 5*shortLimit
}

// trialStep names the commands that the trial runs on hosts.
func trialStep(f fleet.Fleet) gates.Step {
	s := local("trial", "offer the trial", trialKey, "trial", trialLimit(f.Deploy.Trial), nil)
	s.Local.Runs = map[string][]gates.HostRun{}
	asked := rests(f)
	for _, host := range slices.Sorted(maps.Keys(asked)) {
		s.Local.Runs[host] = append(s.Local.Runs[host], gates.HostRun{Argv: restsArgv(f, host, asked[host])})
	}
	host := f.Deploy.Router.Host
	s.Local.Runs[host] = append(s.Local.Runs[host], gates.HostRun{Argv: filesArgv(f, host)})
	return s
}

// newTag begins the request ids of a trial.
func newTag() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Arrivals is the trial's slice of its trace, at a mean rate, with lengths as the fleet
// file bounds or sets them.
func Arrivals(t fleet.Trial, rate float64) ([]bench.Arrival, error) {
	trace, err := bench.Embedded(t.Trace)
	if err != nil {
		return nil, err
	}
	n := min(t.Requests, len(trace.Arrivals))
	if n < 1 || !(rate > 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("plan the trial: no request at %g/s", rate)
	}
	out := make([]bench.Arrival, n)
	span := trace.Arrivals[n-1].At - trace.Arrivals[0].At
	for i, a := range trace.Arrivals[:n] {
		a.At -= trace.Arrivals[0].At
		if span > 0 {
			a.At = time.Duration(float64(a.At) / span.Seconds() * float64(n) / rate)
		} else {
			a.At = time.Duration(float64(i) / rate * float64(time.Second))
		}
		a.Input, a.Output = length(a.Input, t.InputTokens, t.MaxInput), max(2, length(a.Output, t.OutputTokens, t.MaxOutput))
		out[i] = a
	}
	return out, nil
}

// length is the fixed one when set, else the trace's own up to a maximum.
func length(traced, fixed, most int) int {
	switch {
	case fixed > 0:
		return fixed
	case most > 0:
		return min(traced, most)
	}
	return traced
}

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Trial is the offered traffic as the client saw it, a point a rate.
type Trial struct {
	Trace  string  `json:"trace"`
	Points []Point `json:"points"`
}

// Point is one rate of the trial.
type Point struct {
	Rate  float64      `json:"rate"` // requests/s
	Tag   string       `json:"tag"`  // begins every client request id
	Score bench.Report `json:"score"`
	Rows  []bench.Row  `json:"rows"`
}

// trial replays a slice of the trace at each rate through the tunnel. A tunnel that
// breaks ends it: what was measured through a broken tunnel proves nothing.
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
	defer cancel(nil)
	base, lost, err := tunnel(ctx, env)
	if err != nil {
		return nil, err
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lost:
			cancel(errTunnelLost)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-watched }()
	t := Trial{Trace: f.Deploy.Trial.Trace}
	for _, rate := range f.Deploy.Trial.Rates {
		p, err := point(ctx, env, base, f, rate)
		if cause := context.Cause(ctx); errors.Is(cause, errTunnelLost) {
			return nil, cause
		}
		if err != nil {
			return nil, err
		}
		t.Points = append(t.Points, p)
	}
	return json.Marshal(t)
}

var errTunnelLost = problem.New(problem.Failed, "tunnel_lost", "the tunnel to the router was lost during the trial", "run the same command again: the trial starts anew")

func point(ctx context.Context, env gates.Env, base string, f fleet.Fleet, rate float64) (Point, error) {
	arrivals, err := Arrivals(f.Deploy.Trial, rate)
	if err != nil {
		return Point{}, err
	}
	slo := bench.SLO{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS}
	env.Progress(fmt.Sprintf("%d requests at %.3g/s, about %s", len(arrivals), rate, arrivals[len(arrivals)-1].At.Round(time.Second)))
	res, err := bench.Run(ctx, bench.Plan{URL: base, Model: f.Model, Arrivals: arrivals, Timeout: 2 * time.Minute, CharsPerToken: f.Engine.CharsPerToken})
	if err != nil {
		return Point{}, err
	}
	p := Point{Rate: rate, Tag: res.Tag, Rows: res.Rows, Score: bench.Evaluate(res.Rows, slo)}
	env.Progress(fmt.Sprintf("%d of %d within the SLO, TTFT p95 %s", p.Score.Qualified, p.Score.Offered, millis(p.Score.TTFT.P95)))
	return p, nil
}

func millis(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%.0f ms", *v)
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

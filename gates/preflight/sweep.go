package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Bounds of a sweep.
const (
	leastRounds = 3
	mostRounds  = 25
	// precision is the half width of a point's confidence interval at which it is left alone.
	precision = 0.03
)

// Why a sweep ended.
const (
	endedSettled = "settled"
	endedRounds  = "rounds"
	endedBudget  = "budget"
)

// point is one place of the sweep. take measures it once and returns the value.
type point struct {
	name   string
	least  int
	values []float64
	take   func(context.Context) (float64, error)
}

func (p *point) settled() bool {
	return len(p.values) >= p.least && halfWidth(p.values) <= precision
}

// measure sweeps prompt lengths on the idle engine and cohorts that decode together, in rounds
// over all points in changing order, so that a slow minute of the machine meets all alike. A
// point is left alone when its median is known well; the sweep ends when all are, or when its
// budget is spent. Errors do not name the engine: the caller's step does.
func measure(ctx context.Context, q ProfileRequest) (out Profiled, err error) {
	begin := time.Now()
	d, err := proberOf(q.Dialect)
	if err != nil {
		return Profiled{}, err
	}
	p, err := newProber(ctx, q.URL, q.Model, q.Key, q.Seed)
	if err != nil {
		return Profiled{}, err
	}
	defer p.client.Close()
	out = Profiled{IID: q.IID}
	done, err := p.withPeer(ctx, d, q.Peer, q.Key)
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return out, err
	}
	if p.duo != nil {
		if out.Peer, out.Role = q.Peer.IID, engine.RoleDecode; p.duo.prefill == p.client {
			out.Role = engine.RolePrefill
		}
	}
	layout, err := d.Layout(ctx, p.client)
	if err != nil {
		return out, err
	}
	out.Capacity = layout.BlockSize * layout.Blocks
	points := p.points(q, &out.Samples)
	if p.duo == nil { // prefill and decode meet on no engine of one role
		points = append(points, p.mixedPoints(q, d, layout, &out)...)
	}
	if out.Discarded, err = p.warmUp(ctx, q); err != nil {
		return out, fmt.Errorf("warm up: %w", err)
	}
	if err = p.rounds(ctx, points, time.Duration(q.Points.Budget), &out); err != nil {
		return out, err
	}
	out.TookMS = time.Since(begin).Milliseconds()
	return out, nil
}

// rounds measures until every point is settled or a bound is met.
func (p *prober) rounds(ctx context.Context, points []*point, budget time.Duration, out *Profiled) error {
	begin := time.Now()
	for ; ; out.Rounds++ {
		open := slices.DeleteFunc(slices.Clone(points), (*point).settled)
		enough := !slices.ContainsFunc(points, func(x *point) bool { return len(x.values) < x.least })
		switch {
		case len(open) == 0:
			out.Ended = endedSettled
			return nil
		case enough && out.Rounds >= mostRounds:
			out.Ended = endedRounds
			return nil
		}
		p.rng.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		for _, x := range open {
			if enough && time.Since(begin) >= budget {
				out.Ended = endedBudget
				return nil
			}
			v, err := x.take(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			x.values = append(x.values, v)
		}
	}
}

// points are those of the fleet file that the engine can take.
func (p *prober) points(q ProfileRequest, to *profile.Samples) []*point {
	var out []*point
	for _, n := range distinct(q.Points.PrefillTokens) {
		if n+1 > p.limit {
			continue
		}
		out = append(out, &point{name: fmt.Sprintf("prefill of %d tokens", n), least: max(leastRounds, q.Points.PrefillRepeats), take: func(ctx context.Context) (float64, error) {
			s, err := p.prefill(ctx, n)
			if err == nil {
				to.Prefill = append(to.Prefill, s)
			}
			return s.Seconds, err
		}})
	}
	for _, requests := range distinct(q.Points.DecodeRequests) {
		for _, n := range distinct(q.Points.DecodeTokens) {
			if n+q.Points.OutputTokens > p.limit {
				continue
			}
			out = append(out, &point{name: fmt.Sprintf("%d decoding %d tokens", requests, n), least: leastRounds, take: func(ctx context.Context) (float64, error) {
				s, err := p.decode(ctx, requests, n, q.Points.OutputTokens)
				if err == nil {
					to.Decode = append(to.Decode, s)
				}
				return s.Gap, err
			}})
		}
	}
	return out
}

// warmUp sends what is not measured: the first request of a process is slow, and so is the
// first of a length or of a cohort size where kernels are compiled or graphs captured.
func (p *prober) warmUp(ctx context.Context, q ProfileRequest) (int, error) {
	n := 0
	longest := 16
	for _, l := range q.Points.PrefillTokens {
		if l < p.limit {
			longest = max(longest, l)
		}
	}
	for _, l := range []int{16, longest} {
		if _, err := p.prefill(ctx, min(l, p.limit-1)); err != nil {
			return n, err
		}
		n++
	}
	tokens := distinct(q.Points.DecodeTokens)
	if len(tokens) == 0 || tokens[0]+q.Points.OutputTokens > p.limit {
		return n, nil
	}
	for _, requests := range distinct(q.Points.DecodeRequests) {
		if _, err := p.decode(ctx, requests, tokens[0], q.Points.OutputTokens); err != nil && !errors.Is(err, errApart) { // it is not measured
			return n, err
		}
		n += requests
	}
	return n, nil
}

// distinct sorts positive counts and names each once.
func distinct(v []int) []int {
	v = slices.DeleteFunc(slices.Clone(v), func(n int) bool { return n < 1 })
	slices.Sort(v)
	return slices.Compact(v)
}

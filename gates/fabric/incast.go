package fabric

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// IncastRequest asks this host to take in bytes from all others at once.
type IncastRequest struct {
	Host  string            `json:"host"`
	From  map[string]string `json:"from"` // tester's address by host
	For   fleet.Duration    `json:"for"`
	Pulls int               `json:"pulls"` // streams from each
}

const (
	incastRepeats = 3
	// leastIncast is as short as a repeat may be: many senders take turns, and a busy receiver
	// does not run for tens of milliseconds.
	leastIncast = 200 * time.Millisecond
	// mostIncast repeats are made where the two highest do not agree to incastAgree: a link's
	// rate comes again, a chance does not.
	mostIncast  = 6
	incastAgree = 0.1
	maxSenders  = 1024
)

// MeasureIncast opens a session with every other host's tester and lets all send to this
// host at once.
func MeasureIncast(ctx context.Context, q IncastRequest) (Incast, error) {
	out := Incast{Host: q.Host, Shares: map[string]float64{}, Missing: map[string]string{}}
	if len(q.From) < 1 || len(q.From) > maxSenders || q.Pulls < 1 || q.Pulls > maxStreams || q.For <= 0 || q.For.D() > maxPhase {
		return out, fmt.Errorf("measure all → %s: want 1 to %d senders, 1 to %d streams and a length to %s", q.Host, maxSenders, maxStreams, maxPhase)
	}
	open, missing := openAll(ctx, q.From)
	defer func() {
		for _, m := range open {
			m.close()
		}
	}()
	out.Missing = missing
	if ctx.Err() != nil {
		return out, fmt.Errorf("measure all → %s: %w", q.Host, ctx.Err())
	}
	if len(open) == 0 {
		return out, nil
	}
	senders := slices.Sorted(maps.Keys(open))
	out.Interface = open[senders[0]].iface
	before := counters("/sys", out.Interface)
	shares := map[string][]float64{}
	length := max(q.For.D()/incastRepeats, leastIncast)
	out.Seconds = length.Seconds()
	for len(out.Repeat) < incastRepeats || len(out.Repeat) < mostIncast && !agree(out.Repeat) {
		sum, err := allAtOnce(ctx, open, q.Pulls, length, shares, &out)
		if err != nil {
			return out, fmt.Errorf("measure all → %s: %w", q.Host, err)
		}
		out.Repeat = append(out.Repeat, sum)
	}
	for _, s := range senders {
		out.Shares[s] = slices.Max(shares[s])
	}
	out.Gbps, out.Spread = centre(out.Repeat)
	out.Counters = rises(before, counters("/sys", out.Interface))
	return out, nil
}

// agree reports whether the two highest of several repeats are about the same.
func agree(repeats []float64) bool {
	s := slices.Sorted(slices.Values(repeats))
	return len(s) >= 2 && s[len(s)-2] >= (1-incastAgree)*s[len(s)-1]
}

func openAll(ctx context.Context, from map[string]string) (map[string]*measuring, map[string]string) {
	sessions, missing := map[string]*measuring{}, map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for host, address := range from {
		wg.Go(func() {
			m, _, err := open(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				missing[host] = printable(err.Error(), 300)
				return
			}
			sessions[host] = m
		})
	}
	wg.Wait()
	return sessions, missing
}

// allAtOnce runs one transfer from every sender and returns the sum of their rates.
func allAtOnce(ctx context.Context, from map[string]*measuring, pulls int, length time.Duration, shares map[string][]float64, out *Incast) (float64, error) {
	var mu sync.Mutex
	runs := map[string]*running{}
	var g errgroup.Group
	for host, m := range from {
		g.Go(func() error {
			t, err := m.ready(ctx, 0, pulls, length)
			if err != nil {
				return fmt.Errorf("%s: %w", host, err)
			}
			mu.Lock()
			defer mu.Unlock()
			runs[host] = t
			return nil
		})
	}
	err := g.Wait()
	defer func() {
		for _, t := range runs {
			t.drop()
		}
	}()
	if err != nil {
		return 0, err
	}
	var sum float64
	var running errgroup.Group
	for host, m := range from {
		running.Go(func() error {
			t := runs[host]
			if _, err := m.ask(control{Op: "go", Phase: t.id}); err != nil {
				return fmt.Errorf("%s: %w", host, err)
			}
			here := t.run()
			there, err := m.finish(t.id)
			if err != nil {
				return fmt.Errorf("%s: %w", host, err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum += here.gbps()
			shares[host] = append(shares[host], here.gbps())
			out.Segments += there.Sent.Segments
			out.Retransmits += there.Sent.Retransmits
			return nil
		})
	}
	err = running.Wait()
	return sum, err
}

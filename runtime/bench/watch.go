package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// Sample is one look at a router: state, metrics, state again. Run is empty when the two
// states name different processes, and the counters then belong to none.
type Sample struct {
	At       time.Time          `json:"at"`
	Run      string             `json:"journal_run"`
	Counters map[string]float64 `json:"counters"`
	Busy     int                `json:"busy"` // requests in the router
	// Holds are the state's counts of requests in the router that are not 0.
	Holds map[string]int `json:"holds,omitempty"`
	Error string         `json:"error,omitempty"`
}

// Router is what a run asks of a router beside the load. A server that is no router
// answers none of it.
type Router struct {
	url    string
	client *http.Client
}

// maxState bounds a state document, probeWithin one look.
const (
	maxState    = 16 << 20
	probeWithin = 5 * time.Second
)

// NewRouter looks at the router at a base URL; transport nil uses one of its own.
func NewRouter(base string, transport http.RoundTripper) *Router {
	if transport == nil {
		transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 3 * time.Second}
	}
	return &Router{strings.TrimRight(base, "/"), &http.Client{Transport: transport}}
}

// Close ends idle connections.
func (r *Router) Close() { r.client.CloseIdleConnections() }

// get reads a bounded answer.
func (r *Router) get(ctx context.Context, path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return b, fmt.Errorf("get %s: status %d", path, resp.StatusCode)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("get %s: more than %d bytes", path, most)
	}
	return b, nil
}

// Metrics is the router's metrics page.
func (r *Router) Metrics(ctx context.Context) ([]byte, error) {
	return r.get(ctx, "/metrics", maxMetrics)
}

// State is the router's state document.
func (r *Router) State(ctx context.Context) ([]byte, error) {
	return r.get(ctx, "/narwhal/state", maxState)
}

// look is a sample and the two pages it came from.
type look struct {
	Sample
	metrics, state []byte
}

func (r *Router) look(ctx context.Context) look {
	l := look{Sample: Sample{At: time.Now().UTC()}}
	fail := func(err error) look { l.Error = short(err.Error()); return l }
	before, err := r.State(ctx)
	if err != nil {
		return fail(err)
	}
	if l.metrics, err = r.Metrics(ctx); err != nil {
		return fail(err)
	}
	if l.state, err = r.State(ctx); err != nil {
		return fail(err)
	}
	series, err := ParseMetrics(l.metrics)
	if err != nil {
		return fail(err)
	}
	first, _, err := parseState(before)
	if err != nil {
		return fail(err)
	}
	last, holds, err := parseState(l.state)
	if err != nil {
		return fail(err)
	}
	l.Counters, l.Holds, l.Busy = counters(series), holds, busy(holds)
	if first == last {
		l.Run = last
	}
	return l
}

// drained waits until the router holds no request, and returns the last look at it.
func (r *Router) drained(ctx context.Context, within time.Duration) (look, bool) {
	end := time.Now().Add(within)
	for {
		l := r.look(ctx)
		if l.Error == "" && l.Busy == 0 {
			return l, true
		}
		if ctx.Err() != nil || l.Error != "" || !time.Now().Before(end) {
			return l, false
		}
		pause.For(ctx, 200*time.Millisecond)
	}
}

// Drained waits until the router holds no request, and returns the last look at it. It gives up
// early when the router cannot be read.
func (r *Router) Drained(ctx context.Context, within time.Duration) (Sample, bool) {
	l, ok := r.drained(ctx, within)
	return l.Sample, ok
}

// Watch looks at the router at each tick until ctx ends.
func (r *Router) Watch(ctx context.Context, every time.Duration, tell func(Sample)) {
	r.sample(ctx, every, tell)
}

// sample looks at the router at each tick until ctx ends.
func (r *Router) sample(ctx context.Context, every time.Duration, tell func(Sample)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if s := r.look(ctx).Sample; ctx.Err() == nil {
				tell(s)
			}
		}
	}
}

// ServedModel is the one model that a server names; "" when it names none or several. An
// error means that nobody answers.
func (r *Router) ServedModel(ctx context.Context) (string, error) {
	b, err := r.get(ctx, "/v1/models", maxDocument)
	if err != nil && b == nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(b, &list) != nil || len(list.Data) != 1 {
		return "", nil
	}
	return list.Data[0].ID, nil
}

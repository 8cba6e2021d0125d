package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// How a lost tunnel is opened again.
const (
	tunnelFirst  = 100 * time.Millisecond // before the first try; doubles
	tunnelMost   = 5 * time.Second        // between two tries
	tunnelWithin = time.Minute            // then it stays lost
)

var errTunnelLost = problem.New(problem.Failed, "tunnel_lost", "the tunnel to the router was lost during the trial and could not be opened again", "see that the router's host is reached, then run the same command again: the trial starts anew")

// way is a tunnel to the router that is opened again when it breaks. What was under way in it
// is lost; new connections wait for the next tunnel.
type way struct {
	open func(context.Context) (addr string, lost <-chan struct{}, err error)
	told func(string)

	mu     sync.Mutex
	addr   string        // "" while there is none
	opened chan struct{} // closed when there is one
	breaks int
}

// openWay opens the first tunnel; keep must run as long as it is used.
func openWay(ctx context.Context, env gates.Env) (*way, <-chan struct{}, error) {
	r := env.View().Fleet.Deploy.Router
	w := &way{told: env.Progress, opened: make(chan struct{}), open: func(ctx context.Context) (string, <-chan struct{}, error) { return env.Tunnel(ctx, r.Host, r.Listen) }}
	addr, lost, err := w.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	w.set(addr)
	return w, lost, nil
}

func (w *way) set(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.addr = addr; addr == "" {
		w.breaks++
		w.opened = make(chan struct{})
		return
	}
	close(w.opened)
}

// lostTimes is how often the tunnel was lost.
func (w *way) lostTimes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breaks
}

// keep opens the tunnel again whenever it is lost, until ctx ends. It returns errTunnelLost
// when that does not succeed in time.
func (w *way) keep(ctx context.Context, lost <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
		}
		if ctx.Err() != nil {
			return nil // its end closed the tunnel
		}
		w.set("")
		w.told("the tunnel to the router is lost; it is opened again, and the trial is marked")
		addr, next, err := w.again(ctx)
		if err != nil {
			return err
		}
		lost = next
		w.set(addr)
	}
}

func (w *way) again(ctx context.Context) (addr string, lost <-chan struct{}, err error) {
	delay := tunnelFirst
	for end := time.Now().Add(tunnelWithin); ; delay = min(2*delay, tunnelMost) {
		if !pause.For(ctx, delay) {
			return "", nil, ctx.Err()
		}
		if addr, lost, err = w.open(ctx); err == nil {
			return addr, lost, nil
		}
		if !time.Now().Before(end) {
			return "", nil, fmt.Errorf("%w: %w", errTunnelLost, err)
		}
	}
}

// dial connects through the tunnel of the moment.
func (w *way) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	for {
		w.mu.Lock()
		addr, opened := w.addr, w.opened
		w.mu.Unlock()
		if addr != "" {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// transport carries requests through the tunnel.
func (w *way) transport() *http.Transport {
	const most = 4096
	return &http.Transport{DialContext: w.dial, DisableCompression: true, MaxIdleConnsPerHost: most, MaxIdleConns: most, IdleConnTimeout: 3 * time.Second}
}

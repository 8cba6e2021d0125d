package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

// side is what a tunnel command opens beside the router.
type side struct{ name, host, target string }

// sides are the ports of the fleet's monitoring, where it has one.
func sides(f fleet.Fleet) []side {
	m := f.Deploy.Monitoring
	if m == nil {
		return nil
	}
	out := []side{{"prometheus", f.MonitoringHost(), m.Prometheus}}
	if m.Grafana != "" {
		out = append(out, side{"grafana", f.MonitoringHost(), m.Grafana})
	}
	return out
}

// sideRetry lies between two attempts to open one of them.
const sideRetry = 2 * time.Second

// keepSides opens each, and keeps it open on its local port until the context ends.
func (a *app) keepSides(ctx context.Context, connect gates.Connect, list []side) (wait func()) {
	var all sync.WaitGroup
	for _, s := range list {
		all.Go(func() { a.keepSide(ctx, connect, s) })
	}
	return all.Wait
}

func (a *app) keepSide(ctx context.Context, connect gates.Connect, s side) {
	local, told := "127.0.0.1:0", ""
	for ctx.Err() == nil {
		addr, err := a.holdSide(ctx, connect, s, local)
		if addr != "" {
			local, told = addr, ""
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			fmt.Fprintf(a.err, "%s is not reached (%s), trying again\n", s.name, oneLine(told))
		}
		select {
		case <-ctx.Done():
		case <-time.After(sideRetry):
		}
	}
}

// holdSide keeps one open until it is lost; the address is "" when it never was.
func (a *app) holdSide(ctx context.Context, connect gates.Connect, s side, local string) (addr string, err error) {
	h, err := connect(ctx, s.host)
	if err != nil {
		return "", err
	}
	defer h.Close()
	t, err := h.Tunnel(ctx, local, s.target)
	if err != nil {
		return "", err
	}
	defer t.Close()
	fmt.Fprintf(a.out, "%s http://%s\n", s.name, t.Addr())
	select {
	case <-t.Done():
		return t.Addr(), t.Err()
	case <-ctx.Done():
		return t.Addr(), nil
	}
}

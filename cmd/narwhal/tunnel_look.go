package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Limits of looking for the router behind a tunnel.
const (
	lookLimit    = 5 * time.Second
	lookInterval = 5 * time.Second
	missInterval = time.Second // while it does not answer
)

// look asks for the router behind the tunnel: any answer is one.
func look(ctx context.Context, t *remote.Tunnel) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Addr()+"/health", nil)
	if err != nil {
		return err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	before, _ := t.Failures()
	resp, err := c.Do(req)
	if err == nil {
		return resp.Body.Close()
	}
	if n, why := t.Failures(); n > before {
		return why // the host's word says more than a broken connection
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", lookLimit)
	}
	return err
}

func noRouter(err error) error {
	return problem.Wrap(problem.Failed, "no_router", "find the router behind the tunnel", err,
		"narwhal gate status --live says what holds; narwhal gate run starts the router with gate G, narwhal gate log shows what became of it")
}

// keepLooking tells when the router behind a tunnel goes away, and when it is back.
func keepLooking(ctx context.Context, t *remote.Tunnel, w io.Writer, there bool) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	if !there {
		tick.Reset(missInterval)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Done():
			return
		case <-tick.C:
		}
		err := look(ctx, t)
		if ctx.Err() != nil || t.Err() != nil {
			return
		}
		switch {
		case err != nil && there:
			fmt.Fprintf(w, "router does not answer (%s)\n", oneLine(err.Error()))
			tick.Reset(missInterval)
		case err == nil && !there:
			fmt.Fprintf(w, "router answers again\n")
			tick.Reset(lookInterval)
		}
		there = err == nil
	}
}

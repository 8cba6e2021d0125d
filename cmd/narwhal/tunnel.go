package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func tunnelVerb(a *app) *cobra.Command {
	var f gateFlags
	var local string
	c := &cobra.Command{
		Use: "tunnel", Short: "Opens, and keeps open, the way to the fleet's router and monitoring", Args: cobra.NoArgs,
		Long: "Looks for the router, prints its local address and keeps the tunnel open, on the same port after\na loss. Tells when the router goes away and when it is back.\nWhere the fleet file has a deploy.monitoring, the ports of Prometheus and Grafana are opened too, on\nfree local ones.\nEnds in order on SIGTERM or SIGINT, with exit code 0.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if local != "" {
				if err := loopbackAddress(local); err != nil {
					return err
				}
			}
			v, err := a.readRun(cmd, f)
			if err != nil {
				return err
			}
			s := &session{loaded: v.loaded, app: a, jumps: remote.NewJumps()}
			defer s.jumps.Close()
			if local == "" {
				local = v.fleet.Deploy.Router.Tunnel
			}
			if local == "" {
				local = "127.0.0.1:0"
			}
			if err := loopbackAddress(local); err != nil {
				return err
			}
			connect, opened := s.connect(nil), false
			ctx, cancel := context.WithCancel(cmd.Context())
			wait := func() {}
			defer func() { cancel(); wait() }()
			beside := sync.OnceFunc(func() { wait = a.keepSides(ctx, connect, sides(v.fleet)) })
			for cmd.Context().Err() == nil {
				addr, err := a.hold(cmd, connect, v, local, opened, beside)
				if cmd.Context().Err() != nil {
					break // asked to end, be it while it connects
				}
				// Before the first success, and when an identity does not hold, trying again is no use.
				if addr == "" && (!opened || problem.StatusOf(err) == problem.Unverified) {
					return err
				}
				if addr != "" {
					local, opened = addr, true // the same port after a loss
				}
				fmt.Fprintf(a.err, "tunnel lost (%v), opening it again\n", err)
				select {
				case <-cmd.Context().Done():
				case <-time.After(time.Second):
				}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&local, "local", "", "loopback address to listen on (default: deploy.router.tunnel, else a free port)")
	return c
}

// hold keeps one tunnel until it is lost or the command ends. The first one needs a router
// behind it; beside is called once the router's address is printed.
func (a *app) hold(cmd *cobra.Command, connect gates.Connect, v readOnly, local string, again bool, beside func()) (string, error) {
	r := v.fleet.Deploy.Router
	h, err := connect(cmd.Context(), r.Host)
	if err != nil {
		return "", problem.Wrap(gates.StatusOf(err), "unreachable", "open the tunnel", err, remote.Hint(err))
	}
	defer h.Close()
	t, err := h.Tunnel(cmd.Context(), local, r.Listen)
	if err != nil {
		return "", problem.Wrap(problem.Failed, "tunnel", "open the tunnel", err, "name a free loopback port with --local")
	}
	defer t.Close()
	seen := look(cmd.Context(), t)
	switch {
	case seen == nil || cmd.Context().Err() != nil || t.Err() != nil:
	case !again:
		return "", noRouter(seen)
	default:
		fmt.Fprintf(a.err, "router does not answer (%s)\n", oneLine(seen.Error()))
	}
	fmt.Fprintf(a.out, "router http://%s\n", t.Addr())
	beside()
	var looking sync.WaitGroup
	ctx, cancel := context.WithCancel(cmd.Context())
	looking.Go(func() { keepLooking(ctx, t, a.err, seen == nil) })
	defer looking.Wait()
	defer cancel()
	select {
	case <-t.Done():
		return t.Addr(), t.Err()
	case <-cmd.Context().Done():
		return t.Addr(), nil
	}
}

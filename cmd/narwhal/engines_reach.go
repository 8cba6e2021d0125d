package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

// reached is a router that can be asked, by its address or through a tunnel.
type reached struct {
	*lifecycle.Client
	url    string
	tunnel *remote.Tunnel
	undo   []func()
}

func (r *reached) Close() {
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
}

// reach finds the router that the flags name. Only orders carry a token.
func (f *engineFlags) reach(cmd *cobra.Command, a *app, orders bool) (*reached, error) {
	var l loaded
	if len(f.fleet) > 0 {
		var err error
		if l, err = a.loadFleet(cmd.Context(), f.fleet); err != nil {
			return nil, err
		}
	}
	var token fleet.Secret
	if orders {
		var err error
		if token, err = f.controlToken(a, &l); err != nil {
			return nil, err
		}
	}
	r := &reached{url: f.url}
	if l.fleet.Deploy != nil && !cmd.Flags().Changed("url") {
		if err := r.dig(cmd.Context(), a, &l); err != nil {
			r.Close()
			return nil, err
		}
	}
	c, err := lifecycle.New(r.url, token, nil)
	if err != nil {
		r.Close()
		return nil, problem.Wrap(problem.Invalid, "invalid_arguments", "read --url", err, "--url takes the address of a router, like http://127.0.0.1:8000")
	}
	r.Client = c
	r.undo = append(r.undo, c.Close)
	return r, nil
}

// controlToken is the one that the flag names, else the fleet file, else none.
func (f *engineFlags) controlToken(a *app, l *loaded) (token fleet.Secret, err error) {
	switch {
	case f.token != "":
		token, err = controlFrom(a, f.token)
	case l.fleet.Deploy != nil && l.fleet.Deploy.Router.HTTP.ControlToken != "":
		ref := l.fleet.Deploy.Router.HTTP.ControlToken
		if token, err = l.secret(a)(ref); err == nil {
			if _, err = tenant.NewControl(token); err != nil {
				err = fmt.Errorf("%s: %w", string(ref), err)
			}
		}
	default:
		return token, nil
	}
	if err != nil {
		return fleet.Secret{}, problem.Wrap(problem.Invalid, "control_token", "read the control token", err, "--control-token env:NAME or file:PATH names the one that the router was started with")
	}
	return token, nil
}

// dig opens a tunnel to the router of a fleet with deploy.
func (r *reached) dig(ctx context.Context, a *app, l *loaded) error {
	if err := l.withDeploy(); err != nil {
		return err
	}
	s := &session{loaded: *l, app: a, jumps: remote.NewJumps()}
	r.undo = append(r.undo, func() { s.jumps.Close() })
	at := l.fleet.Deploy.Router
	h, err := s.connect(nil)(ctx, at.Host)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return problem.Wrap(gates.StatusOf(err), "unreachable", "reach the router's host", err, remote.Hint(err))
	}
	r.undo = append(r.undo, func() { _ = h.Close() })
	t, err := h.Tunnel(ctx, "127.0.0.1:0", at.Listen)
	if err != nil {
		return problem.Wrap(problem.Failed, "tunnel", "open the tunnel", err, "narwhal gate status --live says what holds")
	}
	r.undo = append(r.undo, func() { _ = t.Close() })
	r.tunnel, r.url = t, "http://"+t.Addr()
	return nil
}

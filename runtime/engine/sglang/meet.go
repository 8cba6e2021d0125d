package sglang

import (
	"context"
	"fmt"
	"net/url"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// defaultBootstrap is the port of an engine that names none.
const defaultBootstrap = 8998

// Meet is the bootstrap server of the process: the host of its address, and its port.
func (dialect) Meet(ctx context.Context, c *engine.Client) (engine.Rendezvous, error) {
	i, err := ServerInfo(ctx, c)
	if err != nil {
		return engine.Rendezvous{}, err
	}
	u, err := url.Parse(c.Base())
	if err != nil {
		return engine.Rendezvous{}, fmt.Errorf("read engine's host: %w", err)
	}
	port := i.BootstrapPort
	if port == 0 {
		port = defaultBootstrap
	}
	if port < 1 || port > 65535 {
		return engine.Rendezvous{}, fmt.Errorf("read bootstrap port: engine names %d", port)
	}
	return engine.Rendezvous{Host: u.Hostname(), Port: port}, nil
}

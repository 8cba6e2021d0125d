package attest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// DefaultListen is where a sidecar listens unless told otherwise.
const DefaultListen = "127.0.0.1:8010"

// SidecarConfig configures Serve.
type SidecarConfig struct {
	Listen   string // "" = DefaultListen
	Document Document
	Identity IdentityReader
	Signer   *Signer // nil = no statements
	// Looker adds to statements what the host shows of the process; nil = not.
	Looker Looker
	// Ready is called once with the address, before the first request; nil = not.
	Ready func(net.Addr)
}

const drainLimit = 5 * time.Second

// Serve runs a sidecar until ctx ends, then lets running requests finish for a
// few seconds. It returns nil after an orderly end.
func Serve(ctx context.Context, cfg SidecarConfig) error {
	if cfg.Identity == nil {
		return errors.New("serve attestation: no identity reader")
	}
	s, err := NewSidecar(ctx, cfg.Document, cfg.Identity, cfg.Signer)
	if err != nil {
		return fmt.Errorf("serve attestation: %w", err)
	}
	s.looker = cfg.Looker
	listen := cfg.Listen
	if listen == "" {
		listen = DefaultListen
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("serve attestation: %w", err)
	}
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	if cfg.Ready != nil {
		cfg.Ready(l.Addr())
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve attestation: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	err = srv.Shutdown(drain)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	<-ended
	if err != nil {
		return fmt.Errorf("stop attestation: %w", err)
	}
	return nil
}

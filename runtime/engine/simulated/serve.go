package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Serve is the process form: it runs one engine until the engine ends, and writes a line of
// JSON with its addresses when it is ready. The end of ctx is SIGTERM: the engine then does
// what its shutdown timeout says, which without one means waiting for its clients. The error
// is ErrKilled or ErrCoreDied when the engine ended that way.
func Serve(ctx context.Context, cfg Config, stderr io.Writer) error {
	s, err := New(cfg)
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	line, err := json.Marshal(map[string]any{
		"ready": true, "url": s.URL(), "side_port": s.SidePort(), "engine_id": s.EngineID(), "model": cfg.Model,
	})
	if err == nil {
		_, err = fmt.Fprintf(stderr, "%s\n", line)
	}
	if err != nil {
		s.Stop()
		return fmt.Errorf("announce engine: %w", err)
	}
	select {
	case <-s.Done():
	case <-ctx.Done():
		s.Terminate()
		<-s.Done()
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("serve engine: %w", err)
	}
	return nil
}

// ReadConfig reads a configuration from JSON and refuses unknown members.
func ReadConfig(r io.Reader) (Config, error) {
	var cfg Config
	d := json.NewDecoder(io.LimitReader(r, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("read simulated engine: %w", err)
	}
	if d.More() {
		return cfg, errors.New("read simulated engine: more than one document")
	}
	return cfg, nil
}

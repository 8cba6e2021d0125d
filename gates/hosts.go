package gates

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// dialed is one host's connection, opened on first use and shared by all steps.
type dialed struct {
	mu   sync.Mutex
	host Host
}

// host returns the connection of a host and opens it when there is none.
func (r *Runner) host(ctx context.Context, id string) (Host, error) {
	r.mu.Lock()
	if r.hosts == nil {
		r.hosts = map[string]*dialed{}
	}
	d := r.hosts[id]
	if d == nil {
		d = &dialed{}
		r.hosts[id] = d
	}
	r.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host != nil {
		if a, ok := d.host.(interface{ Err() error }); !ok || a.Err() == nil {
			return d.host, nil
		}
		_ = d.host.Close()
		d.host = nil
	}
	h, err := r.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	d.host = h
	return h, nil
}

// Close gives the lease back and ends all connections.
func (r *Runner) Close() error {
	r.dropLease()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.hosts {
		d.mu.Lock()
		if d.host != nil {
			_ = d.host.Close()
			d.host = nil
		}
		d.mu.Unlock()
	}
	return nil
}

// resolved fills in the content of a file that is recorded evidence, so that its intent
// names the digest.
func (r *Runner) resolved(s Step) (Step, error) {
	if s.File == nil || s.File.Evidence == "" {
		return s, nil
	}
	b, err := r.view(nil).Evidence(s.File.Evidence)
	if err != nil {
		return s, err
	}
	s.File = TextFile(s.File.Path, s.File.Mode, b)
	return s, nil
}

// performFile places content whose digest the host proves. Its answer is what lies there.
func (r *Runner) performFile(ctx context.Context, h Host, s Step) ([]byte, error) {
	f := *s.File
	r.guard.Store(guardFile(f.Path, f.SHA256), true)
	_, err := h.Put(ctx, remote.File{Path: f.Path, Mode: os.FileMode(f.Mode), SHA256: f.SHA256, Open: r.content(f), Parents: true, KeepMode: f.KeepMode})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"path": f.Path, "sha256": f.SHA256, "bytes": f.Bytes})
}

// content opens what a file step places.
func (r *Runner) content(f File) func() (io.ReadCloser, int64, error) {
	if !f.Release {
		return func() (io.ReadCloser, int64, error) {
			return io.NopCloser(strings.NewReader(f.Content)), int64(len(f.Content)), nil
		}
	}
	return func() (io.ReadCloser, int64, error) {
		b, ok := r.Release.named(f.SHA256)
		if !ok {
			return nil, 0, fmt.Errorf("open the release: no binary has digest %.12s", f.SHA256)
		}
		file, err := os.Open(b.Path)
		if err != nil {
			return nil, 0, fmt.Errorf("open the release: %w", err)
		}
		return file, b.Bytes, nil
	}
}

// localEnv is what a local step sees.
type localEnv struct {
	runner *Runner
	step   Step
}

func (e *localEnv) View() View     { return e.runner.view(nil) }
func (e *localEnv) RunDir() string { return e.runner.Dir }
func (e *localEnv) Progress(text string) {
	e.runner.Progress.Note(e.step, text)
}

func (e *localEnv) Sign(st attest.Statement) ([]byte, error) {
	if e.runner.Signer == nil {
		return nil, nil
	}
	return attest.Sign(e.runner.Signer, st)
}

func (e *localEnv) Secret(ref fleet.SecretRef) (fleet.Secret, error) { return e.runner.Secrets(ref) }

func (e *localEnv) Host(ctx context.Context, id string) (Host, error) { return e.runner.host(ctx, id) }

func (e *localEnv) Dial(ctx context.Context, host, address string) (net.Conn, error) {
	h, err := e.runner.host(ctx, host)
	if err != nil {
		return nil, err
	}
	return h.Dial(ctx, "tcp", address)
}

func (e *localEnv) Tunnel(ctx context.Context, host, address string) (string, <-chan struct{}, error) {
	h, err := e.runner.host(ctx, host)
	if err != nil {
		return "", nil, err
	}
	t, err := h.Tunnel(ctx, "127.0.0.1:0", address)
	if err != nil {
		return "", nil, fmt.Errorf("open tunnel to %s on host %s: %w", address, host, err)
	}
	context.AfterFunc(ctx, func() { _ = t.Close() })
	return t.Addr(), t.Done(), nil
}
